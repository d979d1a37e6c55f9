//! The result of a run, from its folder alone.

use std::collections::BTreeSet;
use std::path::Path;

use metaroce_reports::{
    ClauseInfo, Conduct, IutInfo, RunHeader, RunResult, Selection, TestResult, Unmonitored,
    Verdict, Versions,
};

use super::{RUN, RunError, RunFile, SCHEMA};
use crate::filter::{Filter, Subject};
use crate::judge::judge;

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
    let text = std::fs::read_to_string(&file)
        .map_err(|e| RunError::Usage(format!("{}: {e}", file.display())))?;
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
        if let Some(filter) = &filter {
            test.findings.retain(|finding| {
                filter.selects(&Subject {
                    id,
                    tags,
                    clause: &finding.clause,
                })
            });
        }
        tests.push(test);
    }
    let all = metaroce_spec::clauses().map_err(|e| RunError::Harness(e.to_string()))?;
    let monitored: BTreeSet<&str> = crate::monitors::catalogue()
        .iter()
        .map(|entry| entry.clause)
        .collect();
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
        let shown = serde_json::to_value(clause).map_err(|e| RunError::Harness(e.to_string()))?;
        let word = |key: &str| shown[key].as_str().unwrap_or_default().to_owned();
        let id = word("id");
        if !wanted(&id) {
            continue;
        }
        if monitored.contains(id.as_str()) {
            clauses.push(ClauseInfo {
                id,
                level: word("level"),
                role: word("role"),
                excluded_by: None,
            });
        } else {
            let exception = shown["exception"].as_str().map(str::to_owned);
            let reason = exception.unwrap_or_else(|| "no monitor yet".into());
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

fn bare(id: &str, conduct: Conduct, reason: String) -> TestResult {
    TestResult {
        id: id.into(),
        title: id.into(),
        scenario: id.into(),
        evidence: None,
        conduct,
        verdict: Verdict::Error,
        reason: Some(reason),
        adapters: Vec::new(),
        findings: Vec::new(),
    }
}
