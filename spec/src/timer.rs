//! Timers and limits out of their YAML file.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::table::is_name;
use crate::yaml::{Spanned, fail, read};
use crate::{Clause, DATA, TableError};

/// A timer or a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Timer {
    /// Name in snake case.
    pub id: String,
    /// Name in running text.
    pub name: String,
    /// What it is measured in; `count` for a number of things, which the name says.
    pub unit: String,
    /// The value to start with.
    pub default: u64,
    /// The lowest value there can be, where there is one.
    pub min: Option<u64>,
    /// The highest value there can be, where there is one.
    pub max: Option<u64>,
    /// How the value follows what is measured or has happened, if it does.
    pub rule: Option<String>,
    /// Who runs it.
    pub owner: String,
    /// What starts it.
    pub starts: String,
    /// What ends it.
    pub ends: String,
    /// The clauses that rest on it.
    pub clauses: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTimer {
    id: Spanned<String>,
    name: String,
    unit: String,
    default: Spanned<u64>,
    min: Option<Spanned<u64>>,
    max: Option<Spanned<u64>>,
    rule: Option<String>,
    owner: String,
    starts: String,
    ends: String,
    clauses: Vec<Spanned<String>>,
}

/// All timers and limits, in the order of the file.
///
/// # Errors
/// The first [`TableError`] in it. Faults in the chapters show in [`crate::clauses`].
pub fn timers() -> Result<Vec<Timer>, TableError> {
    let clauses = crate::state::known_clauses()?;
    parse_timers(DATA[2].0, DATA[2].1, &clauses)
}

/// Reads timers and checks that their ids differ, their values are in order and their clauses exist.
///
/// # Errors
/// A [`TableError`] at the place of the first fault.
pub fn parse_timers(file: &str, text: &str, clauses: &[Clause]) -> Result<Vec<Timer>, TableError> {
    let raw: Vec<RawTimer> = read(file, text)?;
    let mut seen = BTreeSet::new();
    let mut timers = Vec::new();
    for timer in raw {
        let id = timer.id.value.clone();
        if !is_name(&id, |b| b.is_ascii_lowercase()) {
            return fail(file, &timer.id, format!("`{id}` is not in snake case"));
        }
        if !seen.insert(id.clone()) {
            return fail(file, &timer.id, format!("`{id}` a second time"));
        }
        let default = timer.default.value;
        if let Some(min) = timer.min.as_ref().filter(|min| min.value > default) {
            return fail(file, min, format!("`{id}` starts below its minimum"));
        }
        if let Some(max) = timer.max.as_ref().filter(|max| max.value < default) {
            return fail(file, max, format!("`{id}` starts above its maximum"));
        }
        if timer.clauses.is_empty() {
            return fail(file, &timer.id, format!("no clause rests on `{id}`"));
        }
        for clause in &timer.clauses {
            if clauses.iter().all(|known| known.id != clause.value) {
                let message = format!("`{id}` names {}, which is no clause", clause.value);
                return fail(file, clause, message);
            }
        }
        timers.push(Timer {
            id,
            name: timer.name,
            unit: timer.unit,
            default,
            min: timer.min.map(|v| v.value),
            max: timer.max.map(|v| v.value),
            rule: timer.rule,
            owner: timer.owner,
            starts: timer.starts,
            ends: timer.ends,
            clauses: timer.clauses.into_iter().map(|c| c.value).collect(),
        });
    }
    Ok(timers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "- id: t\n  name: n\n  unit: ms\n  default: 5\n  min: 1\n  max: 9\n  owner: o\n  starts: s\n  ends: e\n  clauses: [REL-041]\n";

    #[test]
    fn the_timers_of_the_specification_are_sound() {
        let timers = timers().unwrap();
        let rto = timers.iter().find(|timer| timer.id == "rto").unwrap();
        assert_eq!((rto.min, rto.default, rto.max), (Some(10), 100, Some(2000)));
    }

    #[test]
    fn faults_are_found_where_they_stand() {
        let clauses = crate::clauses().unwrap();
        let line = |text: &str| parse_timers("f", text, &clauses).map_err(|e| e.line);
        assert!(line(ONE).is_ok());
        for (from, to, at) in [
            ("default: 5", "default: 0", 5),
            ("default: 5", "default: 10", 6),
            ("REL-041", "REL-999", 10),
            ("[REL-041]", "[]", 1),
            ("id: t", "id: T", 1),
            ("owner: o", "owns: o", 7),
        ] {
            assert_eq!(line(&ONE.replace(from, to)), Err(at), "{to}");
        }
        assert_eq!(line(&ONE.repeat(2)), Err(11));
    }
}
