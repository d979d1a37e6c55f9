//! The result of a run, from its folder alone.

use std::collections::BTreeSet;
use std::path::Path;

use metaroce_reports::{
    ClauseInfo, Conduct, Finding, IutInfo, RunHeader, RunResult, Selection, TestResult,
    Unmonitored, Verdict, Versions,
};

use super::{RUN, RunError, RunFile, SCHEMA};
use crate::filter::{Filter, Subject};
use crate::judge::judge;
use crate::pics::Role;

/// Versions of everything a result depends on.
pub fn versions() -> Versions {
    Versions {
        suite: env!("CARGO_PKG_VERSION").into(),
        specification: metaroce_spec::VERSION.into(),
        specification_digest: metaroce_spec::digest(),
        profile: metaroce_spec::PROFILE.into(),
    }
}

/// Computes the result of the run in `folder`.
///
/// # Errors
/// [`RunError::Usage`] when there is no run; damaged evidence of a test is that test's error.
pub fn analyze(folder: &Path) -> Result<RunResult, RunError> {
    let file = folder.join(RUN);
    let text = crate::judge::text_of(&file).map_err(|e| RunError::Usage(e.to_string()))?;
    let run: RunFile = serde_json::from_str(&text)
        .map_err(|e| RunError::Usage(format!("{}: {e}", file.display())))?;
    if run.schema != SCHEMA {
        return Err(RunError::Usage(format!(
            "{}: schema {:?} instead of {SCHEMA:?}",
            file.display(),
            run.schema
        )));
    }
    let filter = run
        .filter
        .as_deref()
        .map(Filter::parse)
        .transpose()
        .map_err(RunError::Usage)?;
    let monitored: BTreeSet<&str> = crate::monitors::catalogue()
        .iter()
        .map(|entry| entry.clause)
        .collect();
    let mut tests = Vec::new();
    for (id, tags, excluded) in &run.tests {
        let mut test = match excluded {
            Some(reason) => bare(id, Conduct::NotApplicable, reason.clone()),
            None => judge(&folder.join(id))
                .unwrap_or_else(|error| bare(id, Conduct::Error, error.to_string())),
        };
        if test.id != *id {
            test = bare(
                id,
                Conduct::Error,
                format!("its folder holds the evidence of test {}", test.id),
            );
        }
        if test.conduct == Conduct::Error {
            // Nobody knows what it would have shown of any clause.
            let reason = test.reason.clone().unwrap_or_default();
            test.findings = monitored
                .iter()
                .map(|clause| Finding::inconclusive(*clause, 0, reason.clone()))
                .collect();
        }
        if let Some(filter) = &filter {
            select(&mut test, filter, tags);
        }
        tests.push(test);
    }
    let all = metaroce_spec::clauses().map_err(|e| RunError::Harness(e.to_string()))?;
    let wanted = |clause: &str| {
        let selects = |f: &Filter| {
            run.tests
                .iter()
                .any(|(id, tags, _)| f.selects(&Subject { id, tags, clause }))
        };
        filter.as_ref().is_none_or(selects)
    };
    let mut clauses = Vec::new();
    let mut unmonitored = Vec::new();
    for clause in &all {
        let id = clause.id.clone();
        if !wanted(&id) {
            continue;
        }
        if monitored.contains(id.as_str()) {
            clauses.push(ClauseInfo {
                id,
                level: clause.level.to_string(),
                role: clause.role.to_string(),
                excluded_by: missing_role(clause.role, &run.roles)
                    .or_else(|| missing_features(&clause.requires, &run.features)),
            });
        } else {
            let reserve = crate::monitors::RESERVE
                .iter()
                .find(|(clause, _)| *clause == id)
                .map(|(_, why)| format!("has a monitor that no test exercises: {why}"));
            let exception = clause.exception.clone();
            let reason = exception
                .or(reserve)
                .unwrap_or_else(|| "no monitor yet".into());
            unmonitored.push(Unmonitored { clause: id, reason });
        }
    }
    let info = |(name, version, command): (String, String, Option<String>)| IutInfo {
        name,
        version,
        command,
    };
    let header = RunHeader {
        versions: versions(),
        seed: run.seed,
        link: run.link,
        iut: info(run.iut),
        peer: info(run.peer),
        selection: Selection {
            filter: run.filter,
            pics: run.pics,
            tests: run.tests.iter().map(|(id, ..)| id.clone()).collect(),
        },
    };
    RunResult::assemble(header, &clauses, tests, unmonitored)
        .map_err(|e| RunError::Harness(e.to_string()))
}

/// Keeps the findings on selected clauses. A test that met none of them, and met others, has no say: the clauses it was
/// to meet stay without a verdict where no other test met them.
fn select(test: &mut TestResult, filter: &Filter, tags: &[String]) {
    let met = |test: &TestResult| test.findings.iter().any(|finding| finding.exercised > 0);
    let met_any = met(test);
    let id = test.id.clone();
    test.findings.retain(|finding| {
        filter.selects(&Subject {
            id: &id,
            tags,
            clause: &finding.clause,
        })
    });
    if test.conduct == Conduct::Sound && met_any && !met(test) {
        test.conduct = Conduct::NotApplicable;
        test.reason = Some("exercises no selected clause".into());
        test.findings.clear();
    }
}

/// The item of the PICS that excludes a clause for `role`, if one does.
fn missing_role(role: metaroce_spec::Role, claimed: &[Role]) -> Option<String> {
    let bound = match role {
        metaroce_spec::Role::Initiator => Role::Initiator,
        metaroce_spec::Role::Acceptor => Role::Acceptor,
        _ => return None,
    };
    (!claimed.contains(&bound)).then(|| format!("roles: no {}", bound.name()))
}

/// The features that a clause requires and the PICS does not claim, if there are such.
fn missing_features(required: &[String], claimed: &[String]) -> Option<String> {
    let missing: Vec<&str> = required
        .iter()
        .filter(|feature| !claimed.contains(feature))
        .map(String::as_str)
        .collect();
    (!missing.is_empty()).then(|| format!("features not claimed: {}", missing.join(", ")))
}

fn bare(id: &str, conduct: Conduct, reason: String) -> TestResult {
    TestResult {
        id: id.into(),
        title: id.into(),
        scenario: id.into(),
        evidence: None,
        declaration_sha256: None,
        conduct,
        verdict: Verdict::Error,
        reason: Some(reason),
        adapters: Vec::new(),
        findings: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_that_a_clause_requires_has_to_be_claimed() {
        let own = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let missing =
            |required: &[&str], claimed: &[&str]| missing_features(&own(required), &own(claimed));
        assert_eq!(missing(&[], &[]), None);
        assert_eq!(missing(&["read"], &["read"]), None);
        assert_eq!(
            missing(&["read", "atomics", "imm"], &["atomics"]).as_deref(),
            Some("features not claimed: read, imm")
        );
    }
}
