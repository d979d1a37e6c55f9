//! State tables out of their YAML files, and their drawings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::table::is_name;
use crate::yaml::{Spanned, error, fail, read, whole};
use crate::{Clause, STATES, TableError};

/// A state machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StateTable {
    /// Name in snake case; that of the file.
    pub name: String,
    /// Whose state it is.
    pub machine: String,
    /// The states, the initial one first.
    pub states: Vec<State>,
    /// What leads from one to another.
    pub transitions: Vec<Transition>,
    /// Path of the file that this table was read from.
    pub file: String,
}

/// A state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct State {
    /// Name in snake case.
    pub name: String,
    /// What holds in it.
    pub meaning: String,
    /// Whether the machine starts here; so does one.
    pub initial: bool,
    /// Whether the machine may end here.
    #[serde(rename = "final")]
    pub is_final: bool,
}

/// A step from one state to another, or back to the same one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Transition {
    /// State before.
    pub from: String,
    /// What happens, in snake case.
    pub on: String,
    /// When the step is taken, where the event alone does not say.
    #[serde(rename = "if")]
    pub guard: Option<String>,
    /// State after.
    pub to: String,
    /// What is done.
    pub does: String,
    /// Clauses that demand it.
    pub clauses: Vec<String>,
    /// Features that the step is part of; none: it is always there.
    pub requires: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTable {
    name: Spanned<String>,
    machine: String,
    states: Vec<RawState>,
    transitions: Vec<RawTransition>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawState {
    name: Spanned<String>,
    meaning: String,
    #[serde(default)]
    initial: bool,
    #[serde(default, rename = "final")]
    is_final: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTransition {
    from: Spanned<String>,
    on: Spanned<String>,
    #[serde(rename = "if")]
    guard: Option<String>,
    to: Spanned<String>,
    does: String,
    #[serde(default)]
    clauses: Vec<Spanned<String>>,
    #[serde(default)]
    requires: Vec<Spanned<String>>,
}

/// All state tables.
///
/// # Errors
/// The first [`TableError`].
pub fn states() -> Result<Vec<StateTable>, TableError> {
    let clauses = known_clauses()?;
    let read = |(file, text): &(&str, &str)| parse_states(file, text, &clauses);
    STATES.iter().map(read).collect()
}

/// The clauses, for files that refer to them.
pub(crate) fn known_clauses() -> Result<Vec<Clause>, TableError> {
    crate::clauses().map_err(|e| TableError {
        file: e.chapter.clone(),
        line: e.line as u64,
        column: 0,
        message: e.defect.to_string(),
    })
}

/// Reads a state table and checks it: one initial state; every state can be reached from it and has a way to a final
/// one; no event leads two ways under the same condition; clauses and features exist.
///
/// # Errors
/// A [`TableError`] at the place of the first fault.
pub fn parse_states(file: &str, text: &str, clauses: &[Clause]) -> Result<StateTable, TableError> {
    let raw: RawTable = read(file, text)?;
    if !is_name(&raw.name.value, |b| b.is_ascii_lowercase()) {
        let message = format!("`{}` is not in snake case", raw.name.value);
        return fail(file, &raw.name, message);
    }
    let mut names = BTreeSet::new();
    for state in &raw.states {
        let name = &state.name.value;
        if !is_name(name, |b| b.is_ascii_lowercase()) {
            let message = format!("`{name}` is not in snake case");
            return fail(file, &state.name, message);
        }
        if !names.insert(name.as_str()) {
            return fail(file, &state.name, format!("state `{name}` a second time"));
        }
    }
    let first = raw.states.first();
    if raw.states.iter().filter(|s| s.initial).count() != 1 || first.is_none_or(|s| !s.initial) {
        let message = "the first state alone is the initial one".to_owned();
        return fail(file, &raw.name, message);
    }
    check_transitions(file, &raw, &names, clauses)?;
    check_ways(file, &raw)?;
    let values = |all: Vec<Spanned<String>>| all.into_iter().map(|v| v.value).collect();
    Ok(StateTable {
        name: raw.name.value,
        machine: raw.machine,
        states: raw
            .states
            .into_iter()
            .map(|s| State {
                name: s.name.value,
                meaning: s.meaning,
                initial: s.initial,
                is_final: s.is_final,
            })
            .collect(),
        transitions: raw
            .transitions
            .into_iter()
            .map(|t| Transition {
                from: t.from.value,
                on: t.on.value,
                guard: t.guard,
                to: t.to.value,
                does: t.does,
                clauses: values(t.clauses),
                requires: values(t.requires),
            })
            .collect(),
        file: file.to_owned(),
    })
}

fn check_transitions(
    file: &str,
    raw: &RawTable,
    names: &BTreeSet<&str>,
    clauses: &[Clause],
) -> Result<(), TableError> {
    let features = crate::features()?;
    let mut seen: BTreeMap<(&str, &str), Vec<Option<&str>>> = BTreeMap::new();
    for step in &raw.transitions {
        for state in [&step.from, &step.to] {
            if !names.contains(state.value.as_str()) {
                return fail(file, state, format!("there is no state `{}`", state.value));
            }
        }
        if !is_name(&step.on.value, |b| b.is_ascii_lowercase()) {
            let message = format!("`{}` is not in snake case", step.on.value);
            return fail(file, &step.on, message);
        }
        let key = (step.from.value.as_str(), step.on.value.as_str());
        let guards = seen.entry(key).or_default();
        let guard = step.guard.as_deref();
        // A step without condition is taken always, so that another one would never be.
        let clash = guards.iter().any(|g| *g == guard || g.is_none())
            || !guards.is_empty() && guard.is_none();
        if clash {
            let message = format!("`{}` leads two ways from `{}`", key.1, key.0);
            return fail(file, &step.on, message);
        }
        guards.push(guard);
        for clause in &step.clauses {
            if clauses.iter().all(|known| known.id != clause.value) {
                return fail(file, clause, format!("{} is no clause", clause.value));
            }
        }
        for feature in &step.requires {
            if features.iter().all(|known| known.id != feature.value) {
                let message = format!("there is no feature `{}`", feature.value);
                return fail(file, feature, message);
            }
        }
    }
    Ok(())
}

fn check_ways(file: &str, raw: &RawTable) -> Result<(), TableError> {
    let spread = |start: Vec<&str>, forward: bool| {
        let mut found: BTreeSet<String> = start.into_iter().map(str::to_owned).collect();
        loop {
            let before = found.len();
            for step in &raw.transitions {
                let (from, to) = match forward {
                    true => (&step.from.value, &step.to.value),
                    false => (&step.to.value, &step.from.value),
                };
                if found.contains(from) {
                    found.insert(to.clone());
                }
            }
            if found.len() == before {
                return found;
            }
        }
    };
    let of = |keep: fn(&&RawState) -> bool| {
        let kept = raw.states.iter().filter(keep);
        kept.map(|s| s.name.value.as_str()).collect::<Vec<_>>()
    };
    let (reached, ending) = (
        spread(of(|s| s.initial), true),
        spread(of(|s| s.is_final), false),
    );
    for state in &raw.states {
        let name = &state.name.value;
        if !reached.contains(name) {
            return fail(file, &state.name, format!("nothing leads to `{name}`"));
        }
        if !ending.contains(name) {
            let message = format!("no way leads from `{name}` to a final state");
            return Err(error(file, &state.name, message));
        }
    }
    if raw.transitions.is_empty() {
        return Err(whole(file, "there is no transition".to_owned()));
    }
    Ok(())
}

/// A drawing in text: one box a state, below it an arrow for each step that leaves it.
pub fn draw(table: &StateTable) -> String {
    let mut out = String::new();
    for state in &table.states {
        let mark = match (state.initial, state.is_final) {
            (true, true) => "  start, end",
            (true, false) => "  start",
            (false, true) => "  end",
            (false, false) => "",
        };
        let bar = "-".repeat(state.name.len() + 2);
        let leaving: Vec<&Transition> = table
            .transitions
            .iter()
            .filter(|step| step.from == state.name)
            .collect();
        // Writing to a string cannot fail.
        let _ = write!(out, "+{bar}+\n| {} |{mark}\n+{bar}+\n", state.name);
        let width = leaving.iter().map(|step| event(step).chars().count()).max();
        for step in leaving {
            let width = width.unwrap_or_default() + 1;
            let to = if step.to == step.from {
                "(stays)".to_owned()
            } else {
                step.to.clone()
            };
            let _ = writeln!(out, "  |--- {:-<width$}--> {to}", event(step) + " ");
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// The event of a step with its condition and features.
fn event(step: &Transition) -> String {
    let mut text = step.on.replace('_', " ");
    if let Some(guard) = &step.guard {
        let _ = write!(text, " [{guard}]");
    }
    if !step.requires.is_empty() {
        let _ = write!(text, " ({})", step.requires.join(", "));
    }
    text
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
