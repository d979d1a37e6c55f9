//! The blocks of the chapters that are made from tables and data.
//!
//! A block begins with a comment such as `<!-- table CBH -->` and ends with `<!-- end -->`, each on a line of its own.
//! What stands between them is what [`render`] gives; a test compares, and [`rewrite`] puts it right.

use std::fmt::Write as _;

use crate::{CodeSpace, CodeSpaceKind, StateTable, TableError, Timer, draw};

/// A comment that begins or ends a generated block.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Marker {
    /// A wire table, by name.
    Table(String),
    /// A set of code points, by name.
    Codes(String),
    /// A state table, by name.
    States(String),
    /// The timers and limits.
    Timers,
    /// The features.
    Features,
    /// The end of any of them.
    End,
}

impl Marker {
    /// Reads a comment; `None` for one that is no marker.
    pub fn read(line: &str) -> Option<Self> {
        let inner = line.trim().strip_prefix("<!--")?.strip_suffix("-->")?;
        let words: Vec<&str> = inner.split_whitespace().collect();
        match words.as_slice() {
            ["table", name] => Some(Self::Table((*name).to_owned())),
            ["codes", name] => Some(Self::Codes((*name).to_owned())),
            ["states", name] => Some(Self::States((*name).to_owned())),
            ["timers"] => Some(Self::Timers),
            ["features"] => Some(Self::Features),
            ["end"] => Some(Self::End),
            _ => None,
        }
    }
}

/// Every block that belongs into exactly one chapter.
///
/// # Errors
/// The first [`TableError`] in tables or data.
pub fn all() -> Result<Vec<Marker>, TableError> {
    let mut all = Vec::new();
    let tables = crate::tables()?.into_iter();
    all.extend(tables.map(|table| Marker::Table(table.name)));
    let codes = crate::codes()?.into_iter();
    all.extend(codes.map(|space| Marker::Codes(space.name)));
    let states = crate::states()?.into_iter();
    all.extend(states.map(|table| Marker::States(table.name)));
    all.extend([Marker::Timers, Marker::Features]);
    Ok(all)
}

/// What stands in a block, as Markdown; empty for [`Marker::End`].
///
/// # Errors
/// A [`TableError`] in tables or data, or one that says that there is nothing of that name.
pub fn render(marker: &Marker) -> Result<String, TableError> {
    let missing = |what: &str, name: &str| {
        crate::yaml::whole("chapters", format!("there is no {what} of the name {name}"))
    };
    Ok(match marker {
        Marker::Table(name) => {
            let table = crate::tables()?.into_iter().find(|t| t.name == *name);
            crate::diagram(&table.ok_or_else(|| missing("table", name))?)
        }
        Marker::Codes(name) => {
            let space = crate::codes()?.into_iter().find(|s| s.name == *name);
            codes(&space.ok_or_else(|| missing("set of code points", name))?)
        }
        Marker::States(name) => {
            let table = crate::states()?.into_iter().find(|t| t.name == *name);
            states(&table.ok_or_else(|| missing("state table", name))?)
        }
        Marker::Timers => timers(&crate::timers()?),
        Marker::Features => features()?,
        Marker::End => String::new(),
    })
}

/// The chapter with every block as it has to be.
///
/// # Errors
/// A [`TableError`] of [`render`]. A block without end is left as it is: [`crate::parse_chapter`] refuses it.
pub fn rewrite(text: &str) -> Result<String, TableError> {
    let mut out = String::new();
    // The lines of a block, in case it has no end.
    let mut within: Option<(Marker, String)> = None;
    for line in text.split_inclusive('\n') {
        match (Marker::read(line), within.take()) {
            (Some(Marker::End), Some((marker, _))) => {
                let _ = write!(out, "\n{}\n", render(&marker)?);
                out.push_str(line);
            }
            (_, Some((marker, mut lines))) => {
                lines.push_str(line);
                within = Some((marker, lines));
            }
            (marker, None) => {
                out.push_str(line);
                within = marker
                    .filter(|marker| *marker != Marker::End)
                    .map(|marker| (marker, String::new()));
            }
        }
    }
    if let Some((_, lines)) = within {
        out.push_str(&lines);
    }
    Ok(out)
}

/// The markers of the blocks in a chapter, in order.
pub fn markers(text: &str) -> Vec<Marker> {
    let all = text.lines().filter_map(Marker::read);
    all.filter(|marker| *marker != Marker::End).collect()
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn codes(space: &CodeSpace) -> String {
    let digits = (space.width as usize).div_ceil(4);
    let kind = match space.kind {
        CodeSpaceKind::Enumeration => "values",
        CodeSpaceKind::Flags => "bits",
    };
    let mut out = format!("The {kind} of `{}`, in hexadecimal:\n\n", space.field);
    out.push_str("| code | name | meaning |\n|---:|---|---|\n");
    for entry in &space.entries {
        let (code, name, meaning) = (entry.code, &entry.name, cell(&entry.meaning));
        let _ = writeln!(out, "| {code:0digits$x} | {name} | {meaning} |");
    }
    if space.kind == CodeSpaceKind::Flags {
        let _ = writeln!(out, "| {:0digits$x} | | reserved: zero |", space.reserved);
    }
    out
}

fn states(table: &StateTable) -> String {
    let mut out = format!("```text\n{}```\n\n", draw(table));
    out.push_str("| state | meaning |\n|---|---|\n");
    for state in &table.states {
        let _ = writeln!(out, "| {} | {} |", shown(&state.name), cell(&state.meaning));
    }
    out.push_str(
        "\n| from | on | if | to | does | requires | clauses |\n|---|---|---|---|---|---|---|\n",
    );
    for step in &table.transitions {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} |",
            shown(&step.from),
            shown(&step.on),
            cell(step.guard.as_deref().unwrap_or_default()),
            shown(&step.to),
            cell(&step.does),
            step.requires.join(", "),
            step.clauses.join(", ")
        );
    }
    out
}

fn shown(name: &str) -> String {
    name.replace('_', " ")
}

fn timers(timers: &[Timer]) -> String {
    let mut out = String::from(
        "| name | default | least | most | run by | starts | ends | clauses |\n|---|---:|---:|---:|---|---|---|---|\n",
    );
    for timer in timers {
        let value = |value: Option<u64>| {
            value.map_or_else(String::new, |value| match timer.unit.as_str() {
                "count" => value.to_string(),
                unit => format!("{value} {unit}"),
            })
        };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            cell(&timer.name),
            value(Some(timer.default)),
            value(timer.min),
            value(timer.max),
            cell(&timer.owner),
            cell(&timer.starts),
            cell(&timer.ends),
            timer.clauses.join(", ")
        );
    }
    let rules = timers.iter().filter_map(|t| Some((t, t.rule.as_ref()?)));
    for (i, (timer, rule)) in rules.enumerate() {
        let before = if i == 0 { "\n" } else { "" };
        let _ = writeln!(out, "{before}- {}: {rule}", timer.name);
    }
    out
}

fn features() -> Result<String, TableError> {
    let mut out = String::from("| feature | name | meaning | agreed by |\n|---|---|---|---|\n");
    for feature in crate::features()? {
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} |",
            feature.id,
            cell(&feature.name),
            cell(&feature.meaning),
            cell(&feature.agreed)
        );
    }
    Ok(out)
}

#[cfg(test)]
#[path = "block_tests.rs"]
mod tests;
