//! Choosing clauses by what they say of themselves.

use std::collections::BTreeMap;

use metaroce_spec::{CHAPTERS, Clause, Level, Observability, Role, Source};

use crate::coverage::Coverage;

/// What is asked for; everything that is set has to fit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// File name of a chapter.
    pub chapter: Option<&'static str>,
    /// Whom the clause binds.
    pub role: Option<Role>,
    /// What it rests on: a published statement, or, as `None`, a choice of the project.
    pub source: Option<Option<u8>>,
    /// How binding it is.
    pub level: Option<Level>,
    /// Where it shows.
    pub observed: Option<Observability>,
    /// A feature that it requires; empty for clauses that require none.
    pub requires: Option<String>,
    /// Neither covered by a monitor nor excepted.
    pub uncovered: bool,
    /// A word of its statement or source, in any case.
    pub text: Option<String>,
}

impl Query {
    /// Whether the clause fits.
    pub fn fits(&self, clause: &Clause, coverage: &BTreeMap<String, Coverage>) -> bool {
        let source = match &clause.source {
            Source::Public { statement, .. } => Some(*statement),
            Source::Project { .. } => None,
        };
        let requires = |feature: &String| match feature.is_empty() {
            true => clause.requires.is_empty(),
            false => clause.requires.contains(feature),
        };
        let covered = || {
            let by = coverage.get(&clause.id);
            by.is_some_and(|by| !by.monitors.is_empty()) || clause.exception.is_some()
        };
        let says = |word: &String| {
            let all = format!("{} {}", clause.text, clause.source).to_lowercase();
            all.contains(&word.to_lowercase())
        };
        self.chapter.is_none_or(|chapter| clause.chapter == chapter)
            && self.role.is_none_or(|role| clause.role == role)
            && self.source.is_none_or(|asked| source == asked)
            && self.level.is_none_or(|level| clause.level == level)
            && self.observed.is_none_or(|o| clause.observability == o)
            && self.requires.as_ref().is_none_or(requires)
            && !(self.uncovered && covered())
            && self.text.as_ref().is_none_or(says)
    }
}

/// The chapter of that number, name or prefix: `6`, `06`, `reliability`, `06-reliability`, `REL`.
///
/// # Errors
/// A message that lists the chapters.
pub fn chapter(text: &str) -> Result<&'static str, String> {
    let text = text.to_lowercase();
    let fits = |name: &str, prefix: &str| {
        let stem = name.trim_end_matches(".md");
        let (number, title) = stem.split_once('-').unwrap_or((stem, stem));
        let numbers = [number, number.trim_start_matches('0')];
        numbers.contains(&text.as_str())
            || [name, stem, title].contains(&text.as_str())
            || prefix.to_lowercase() == text
    };
    let found = CHAPTERS.iter().find(|(name, prefix, _)| fits(name, prefix));
    found.map(|(name, ..)| *name).ok_or_else(|| {
        let all: Vec<&str> = CHAPTERS.iter().map(|(_, prefix, _)| *prefix).collect();
        format!(
            "no such chapter; there are {}, and their numbers and names",
            all.join(", ")
        )
    })
}

/// `P7` or `project`.
///
/// # Errors
/// A message.
pub fn source(text: &str) -> Result<Option<u8>, String> {
    if text == "project" {
        return Ok(None);
    }
    let number = text.strip_prefix(['P', 'p']).and_then(|n| n.parse().ok());
    match number {
        Some(n) if (1..=metaroce_spec::STATEMENTS).contains(&n) => Ok(Some(n)),
        _ => Err(format!(
            "`{text}` is neither project nor P1 to P{}",
            metaroce_spec::STATEMENTS
        )),
    }
}

/// A level such as `MUST` or `must-not`.
///
/// # Errors
/// A message that lists the levels.
pub fn level(text: &str) -> Result<Level, String> {
    let name = text.to_uppercase().replace(['-', '_'], " ");
    Level::from_name(&name).ok_or_else(|| one_of(Level::ALL.iter().map(|l| l.as_str())))
}

/// A role.
///
/// # Errors
/// A message that lists the roles.
pub fn role(text: &str) -> Result<Role, String> {
    Role::from_name(&text.to_lowercase())
        .ok_or_else(|| one_of(Role::ALL.iter().map(|r| r.as_str())))
}

/// A place where clauses show.
///
/// # Errors
/// A message that lists the places.
pub fn observed(text: &str) -> Result<Observability, String> {
    Observability::from_name(&text.to_lowercase())
        .ok_or_else(|| one_of(Observability::ALL.iter().map(|o| o.as_str())))
}

/// A feature, or `none` for clauses that require none.
///
/// # Errors
/// A message that lists the features.
pub fn feature(text: &str) -> Result<String, String> {
    if text == "none" {
        return Ok(String::new());
    }
    let known = metaroce_spec::features().map_err(|e| e.to_string())?;
    if known.iter().any(|feature| feature.id == text) {
        return Ok(text.to_owned());
    }
    let ids = known.iter().map(|feature| feature.id.as_str());
    Err(one_of(ids.chain(["none"])))
}

fn one_of<'n>(names: impl Iterator<Item = &'n str>) -> String {
    format!("there are {}", names.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chapters_have_several_names() {
        for name in ["6", "06", "REL", "rel", "reliability", "06-reliability.md"] {
            assert_eq!(chapter(name), Ok("06-reliability.md"), "{name}");
        }
        assert!(chapter("60").unwrap_err().contains("REL"));
    }

    #[test]
    fn values_are_checked() {
        assert_eq!(source("P7"), Ok(Some(7)));
        assert_eq!(source("project"), Ok(None));
        assert!(source("P15").is_err() && source("7").is_err());
        assert_eq!(level("must-not"), Ok(Level::MustNot));
        assert!(level("must-be").is_err());
        assert_eq!(feature("none").as_deref(), Ok(""));
        assert!(feature("flying").unwrap_err().contains("atomics"));
        assert!(role("referee").is_err() && observed("moon").is_err());
    }
}
