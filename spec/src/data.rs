//! Features and retired ids out of their YAML files.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::table::is_name;
use crate::yaml::{Spanned, fail, read};
use crate::{CHAPTERS, DATA, TableError};

/// Something that an implementation may leave out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Feature {
    /// Name in clauses and claims, in snake case.
    pub id: String,
    /// Name in running text.
    pub name: String,
    /// How both sides know that it is in force.
    pub agreed: String,
    /// What it is.
    pub meaning: String,
}

/// The id of a clause that is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Retired {
    /// The id.
    pub id: String,
    /// Version of the specification from which on it is gone.
    pub since: String,
    /// Why.
    pub why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFeature {
    id: Spanned<String>,
    name: String,
    agreed: String,
    meaning: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRetired {
    id: Spanned<String>,
    since: String,
    why: String,
}

/// All features, in the order of the file.
///
/// # Errors
/// The first [`TableError`] in it.
pub fn features() -> Result<Vec<Feature>, TableError> {
    parse_features(DATA[0].0, DATA[0].1)
}

/// The ids that are never used again.
///
/// # Errors
/// The first [`TableError`] in the file.
pub fn retired() -> Result<Vec<Retired>, TableError> {
    parse_retired(DATA[1].0, DATA[1].1)
}

/// Reads features and checks that their ids are names that differ.
///
/// # Errors
/// A [`TableError`] at the place of the first fault.
pub fn parse_features(file: &str, text: &str) -> Result<Vec<Feature>, TableError> {
    let raw: Vec<RawFeature> = read(file, text)?;
    let mut seen = BTreeSet::new();
    let mut features = Vec::new();
    for feature in raw {
        let id = feature.id.value.clone();
        if !is_name(&id, |b| b.is_ascii_lowercase()) {
            return fail(file, &feature.id, format!("`{id}` is not in snake case"));
        }
        if !seen.insert(id.clone()) {
            return fail(file, &feature.id, format!("`{id}` a second time"));
        }
        features.push(Feature {
            id,
            name: feature.name,
            agreed: feature.agreed,
            meaning: feature.meaning,
        });
    }
    Ok(features)
}

/// Reads retired ids and checks that each is one of a chapter of this specification, and there once.
///
/// # Errors
/// A [`TableError`] at the place of the first fault.
pub fn parse_retired(file: &str, text: &str) -> Result<Vec<Retired>, TableError> {
    let raw: Vec<RawRetired> = read(file, text)?;
    let mut seen = BTreeSet::new();
    let mut ids = Vec::new();
    for gone in raw {
        let id = gone.id.value.clone();
        let known = id.split_once('-').is_some_and(|(prefix, digits)| {
            let chapter = CHAPTERS.iter().any(|(_, known, _)| *known == prefix);
            chapter && digits.len() == 3 && digits.bytes().all(|b| b.is_ascii_digit())
        });
        if !known {
            return fail(file, &gone.id, format!("`{id}` is no id of a clause"));
        }
        if !seen.insert(id.clone()) {
            return fail(file, &gone.id, format!("{id} a second time"));
        }
        ids.push(Retired {
            id,
            since: gone.since,
            why: gone.why,
        });
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_features_are_those_that_clauses_may_name() {
        let ids: Vec<String> = features().unwrap().into_iter().map(|f| f.id).collect();
        let expected = "imm inv read atomics reset retire change planes hints srq performance";
        assert_eq!(ids.join(" "), expected);
    }

    #[test]
    fn features_are_names_that_differ() {
        let one = "- {id: read, name: n, agreed: a, meaning: m}\n";
        assert_eq!(parse_features("f", one).unwrap().len(), 1);
        for (text, line) in [
            (one.repeat(2), 2),
            (one.replace("read", "Read"), 1),
            (one.replace("meaning", "means"), 1),
        ] {
            assert_eq!(parse_features("f", &text).unwrap_err().line, line, "{text}");
        }
    }

    #[test]
    fn retired_ids_are_ids_that_are_not_in_use() {
        let one = "- {id: REL-901, since: 0.2.0, why: w}\n";
        assert_eq!(parse_retired("f", one).unwrap().len(), 1);
        for text in [
            one.repeat(2),
            one.replace("REL", "XYZ"),
            one.replace("901", "9"),
        ] {
            assert!(parse_retired("f", &text).is_err(), "{text}");
        }
        let clauses = crate::clauses().unwrap();
        let gone = retired().unwrap();
        assert!(gone.iter().all(|g| clauses.iter().all(|c| c.id != g.id)));
    }
}
