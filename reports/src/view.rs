//! What the renderings for people have in common.

use crate::text::clipped;
use crate::{Conduct, Counts, Finding, RunResult, TestResult, Verdict, Violation};

/// Longest identifier shown, in characters.
pub(crate) const ID_LIMIT: usize = 80;

/// The verdicts in the order people look for them.
pub(crate) const BY_URGENCY: [Verdict; 5] = [
    Verdict::Fail,
    Verdict::Error,
    Verdict::Inconclusive,
    Verdict::Pass,
    Verdict::NotApplicable,
];

/// All findings that are violations charged to the implementation, in the order of the tests.
pub(crate) fn failures(result: &RunResult) -> impl Iterator<Item = (&TestResult, &Finding)> {
    result.tests.iter().flat_map(|test| {
        let failed = test
            .findings
            .iter()
            .filter(|finding| finding.verdict == Verdict::Fail);
        failed.map(move |finding| (test, finding))
    })
}

/// All tests that the implementation failed as a whole.
pub(crate) fn failed_tests(result: &RunResult) -> impl Iterator<Item = &TestResult> {
    let tests = result.tests.iter();
    tests.filter(|test| test.conduct == Conduct::Failed)
}

/// Clauses with this verdict, and tests that have it by their conduct, gathered by reason in order of appearance; raw text.
pub(crate) fn reasons(result: &RunResult, verdict: Verdict) -> Vec<(&str, Vec<String>)> {
    let clauses = result
        .clauses
        .iter()
        .filter(|clause| clause.verdict == verdict);
    // A sound test says nothing about its verdict that its clauses do not say, unless it met none.
    let tests = result.tests.iter().filter(|test| {
        test.verdict == verdict
            && (test.conduct != Conduct::Sound || !test.findings.iter().any(Finding::is_exercised))
    });
    let clauses = clauses.map(|clause| (clause.reason.as_deref(), clause.id.clone()));
    let tests = tests.map(|test| {
        (
            test.reason.as_deref(),
            format!("test {}{}", test.id, adapters(test)),
        )
    });
    gathered(
        clauses
            .chain(tests)
            .map(|(reason, id)| (reason.unwrap_or("no reason was given"), id)),
    )
}

/// Clauses without a monitor, gathered by reason in order of appearance, ids in a row as one; raw text.
pub(crate) fn unmonitored(result: &RunResult) -> Vec<(&str, Vec<String>)> {
    let entries = result.unmonitored.iter();
    let mut groups = gathered(entries.map(|entry| (entry.reason.as_str(), entry.clause.clone())));
    for (_, ids) in &mut groups {
        *ids = rows_of_ids(ids);
    }
    groups
}

/// Writes three or more ids that count up by one as `first to last`.
fn rows_of_ids(ids: &[String]) -> Vec<String> {
    let follows = |a: &String, b: &String| {
        let number = |id: &str| -> Option<(String, u32)> {
            let (prefix, digits) = id.rsplit_once('-')?;
            Some((prefix.to_owned(), digits.parse().ok()?))
        };
        match (number(a), number(b)) {
            (Some((p, n)), Some((q, m))) => p == q && n.checked_add(1) == Some(m),
            _ => false,
        }
    };
    let rows = ids.chunk_by(follows);
    rows.flat_map(|row| match row {
        [first, _, .., last] => vec![format!("{first} to {last}")],
        _ => row.to_vec(),
    })
    .collect()
}

/// Clauses that were exercised although the PICS excludes them, gathered by its item; raw text.
pub(crate) fn contradictions(result: &RunResult) -> Vec<(&str, Vec<String>)> {
    let clauses = result.clauses.iter();
    let contradicted = clauses.filter(|clause| clause.verdict != Verdict::NotApplicable);
    gathered(
        contradicted.filter_map(|clause| Some((clause.excluded_by.as_deref()?, clause.id.clone()))),
    )
}

/// ` (iut: exit status 3)`, or nothing when no adapter ended; raw text.
fn adapters(test: &TestResult) -> String {
    let ends: Vec<String> = test
        .adapters
        .iter()
        .map(|adapter| format!("{}: {}", adapter.side.as_str(), adapter.reason))
        .collect();
    if ends.is_empty() {
        String::new()
    } else {
        format!(" ({})", ends.join(", "))
    }
}

/// `frame 3`, `frames 3, 4`, `no frame`, cut short after many.
pub(crate) fn frames(violation: &Violation) -> String {
    const SHOWN: usize = 16;
    let shown: Vec<String> = violation
        .frames
        .iter()
        .take(SHOWN)
        .map(u64::to_string)
        .collect();
    let rest = violation.frames.len().saturating_sub(SHOWN);
    match violation.frames.len() {
        0 => "no frame".to_owned(),
        1 => format!("frame {}", shown.join("")),
        _ if rest == 0 => format!("frames {}", shown.join(", ")),
        _ => format!("frames {} and {rest} more", shown.join(", ")),
    }
}

/// The first few ids, and how many more there are.
pub(crate) fn ids(ids: &[String], shown: usize) -> String {
    let mut parts: Vec<String> = ids
        .iter()
        .take(shown)
        .map(|id| clipped(id, ID_LIMIT))
        .collect();
    if ids.len() > shown {
        parts.push(format!("+{}", ids.len() - shown));
    }
    parts.join(", ")
}

/// The run in one line: its verdict and all counts.
pub(crate) fn summary_line(result: &RunResult) -> String {
    format!(
        "{}: clauses {}; tests {}; {} clauses unmonitored",
        result.verdict(),
        counts(&result.summary.clauses),
        counts(&result.summary.tests),
        result.unmonitored.len(),
    )
}

fn counts(counts: &Counts) -> String {
    BY_URGENCY
        .map(|verdict| format!("{} {verdict}", counts.count(verdict)))
        .join(", ")
}

fn gathered<'a>(entries: impl Iterator<Item = (&'a str, String)>) -> Vec<(&'a str, Vec<String>)> {
    let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for (reason, id) in entries {
        let place = *places.entry(reason).or_insert(groups.len());
        match groups.get_mut(place) {
            Some((_, ids)) => ids.push(id),
            None => groups.push((reason, vec![id])),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::rows_of_ids;

    #[test]
    fn ids_in_a_row_become_one_entry() {
        let rows = |ids: &[&str]| {
            let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
            rows_of_ids(&ids).join(", ")
        };
        assert_eq!(
            rows(&["A-1", "A-2", "A-3", "B-4", "B-5", "A-9", "other"]),
            "A-1 to A-3, B-4, B-5, A-9, other"
        );
        assert_eq!(
            rows(&["A-2", "A-1", "A-4294967295"]),
            "A-2, A-1, A-4294967295"
        );
        assert_eq!(rows(&["C-1", "C-3", "C-5"]), "C-1, C-3, C-5");
        assert_eq!(rows(&[]), "");
    }
}
