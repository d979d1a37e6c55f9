//! The lock file: which clauses there are, and what covers each of them, in a form made for reviewing its changes.

use std::collections::BTreeMap;

use crate::Clause;
use crate::digest::text_digest;

/// Renders `clauses.lock`: a heading with the totals, then one line per clause in the given order.
///
/// A line holds, between bars, the id, the level (with the revision where there is more than one, as `MUST r2`), the first 16 hex digits of the SHA-256 of the statement, where it
/// can be observed, and one of `covered_by: ...`, `exception: ...` or `uncovered`. `coverage` maps clause ids to the
/// names of what judges them. An id in it that is no clause gets a line that says so, lest it go unnoticed.
pub fn lock(clauses: &[Clause], coverage: &BTreeMap<String, Vec<String>>) -> String {
    let covered = |clause: &Clause| coverage.get(&clause.id).filter(|by| !by.is_empty());
    let (mut by_test, mut excepted) = (0, 0);
    let mut lines = String::new();
    for clause in clauses {
        let state = match (covered(clause), &clause.exception) {
            (Some(by), _) => {
                by_test += 1;
                format!("covered_by: {}", by.join(", "))
            }
            (None, Some(reason)) => {
                excepted += 1;
                format!("exception: {reason}")
            }
            (None, None) => "uncovered".to_owned(),
        };
        let hash: String = text_digest(&clause.text).chars().take(16).collect();
        let revision = match clause.revision {
            1 => String::new(),
            n => format!(" r{n}"),
        };
        lines.push_str(&format!(
            "{} | {}{revision} | {hash} | {} | {state}\n",
            clause.id, clause.level, clause.observability
        ));
    }
    for id in coverage.keys() {
        if clauses.iter().all(|clause| clause.id != *id) {
            lines.push_str(&format!("{id} | no such clause\n"));
        }
    }
    let total = clauses.len();
    let uncovered = total - by_test - excepted;
    format!(
        "# {}, specification {}: {total} clauses, {by_test} covered, {excepted} excepted, {uncovered} uncovered\n{lines}",
        crate::PROFILE,
        crate::VERSION
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Level, Observability, Role, Source};

    fn clause(id: &str, text: &str, exception: Option<&str>) -> Clause {
        Clause {
            id: id.into(),
            level: Level::MustNot,
            role: Role::Sender,
            source: Source::Project {
                reason: "a reason".into(),
            },
            observability: Observability::Wire,
            text: text.into(),
            revision: 1,
            requires: Vec::new(),
            exception: exception.map(Into::into),
            chapter: "06-reliability.md".into(),
            line: 1,
        }
    }

    #[test]
    fn every_state_has_its_line() {
        let clauses = [
            clause("REL-001", "abc", None),
            clause("REL-002", "abc", Some("hidden")),
            clause("REL-003", "abc", None),
            clause("REL-004", "abc", Some("hidden")),
        ];
        let coverage = BTreeMap::from([
            (
                "REL-001".to_owned(),
                vec!["one".to_owned(), "two".to_owned()],
            ),
            ("REL-003".to_owned(), vec![]),
            ("REL-004".to_owned(), vec!["three".to_owned()]),
            ("REL-900".to_owned(), vec!["four".to_owned()]),
        ]);
        let expected = "\
# metaroce-open 0.1, specification 0.1.0: 4 clauses, 2 covered, 1 excepted, 1 uncovered
REL-001 | MUST NOT | ba7816bf8f01cfea | wire | covered_by: one, two
REL-002 | MUST NOT | ba7816bf8f01cfea | wire | exception: hidden
REL-003 | MUST NOT | ba7816bf8f01cfea | wire | uncovered
REL-004 | MUST NOT | ba7816bf8f01cfea | wire | covered_by: three
REL-900 | no such clause
";
        assert_eq!(lock(&clauses, &coverage), expected);
    }

    #[test]
    fn an_amended_clause_shows_its_revision() {
        let mut amended = clause("REL-001", "abc", None);
        amended.revision = 2;
        let text = lock(&[amended], &BTreeMap::new());
        assert!(text.contains("REL-001 | MUST NOT r2 | ba78"), "{text}");
    }

    #[test]
    fn the_hash_follows_the_words_and_not_their_wrapping() {
        let line = |text| lock(&[clause("REL-001", text, None)], &BTreeMap::new());
        assert_eq!(line("a b"), line("a\n  b"));
        assert_ne!(line("a b"), line("a c"));
    }
}
