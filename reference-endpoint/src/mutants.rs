//! Mutants: the model with one rule broken on purpose, to show that a suite notices.
//!
//! A mutant edits at the edge of a sound endpoint: datagrams on their way in and out, events, counters, and memory after
//! placement. The model itself knows nothing of it. Fakes are no endpoints at all, but look like one to whoever drives
//! them. Neither is ever active unless it is named.

mod checks;
mod ecn;
mod edge;
mod fakes;
mod handshake;
mod packets;
mod paths;
mod receiver;
mod repair;
mod streams;
mod tools;

use crate::adapter::Engine;
use crate::core::{Config, Endpoint, Misuse};
use edge::{Edit, Mutated};

/// What is known of a mutant beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MutantInfo {
    /// Name, for people and for [`by_id`].
    pub id: &'static str,
    /// The clause that it breaks, and that has to fail.
    pub clause: &'static str,
    /// Clauses that it cannot help breaking besides, because one act shows in several places.
    pub declared: &'static [&'static str],
    /// Why it cannot; empty where there are none.
    pub because: &'static str,
    /// What it does.
    pub what: &'static str,
}

/// What is known of a fake: it must pass nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FakeInfo {
    /// Name, for people and for [`by_id`].
    pub id: &'static str,
    /// What it does.
    pub what: &'static str,
}

/// A mutant or a fake, ready to be made as often as a session is opened.
#[derive(Debug, Clone, Copy)]
pub struct Mutant(Make);

#[derive(Debug, Clone, Copy)]
enum Make {
    Edited(fn() -> Box<dyn Edit>),
    Whole(fn(Config) -> Box<dyn Engine>),
}

/// A line of the catalogue.
type Definition = (MutantInfo, fn() -> Box<dyn Edit>);

/// Fills a catalogue: id, clause, declared clauses and why, what it does, and how to make it.
macro_rules! catalogue {
    ( $( $id:literal $clause:literal $declared:tt $(because $because:literal)? $what:literal => $make:expr ; )+ ) => {
        /// The mutants of this concern.
        pub(super) const ALL: &[super::Definition] = &[ $( (
            super::MutantInfo { id: $id, clause: $clause, declared: &$declared, because: concat!($($because)?), what: $what },
            || Box::new($make),
        ), )+ ];
    };
}
use catalogue;

const CONCERNS: &[&[Definition]] = &[
    packets::ALL,
    handshake::ALL,
    streams::ALL,
    paths::ALL,
    repair::ALL,
    receiver::ALL,
    ecn::ALL,
    checks::ALL,
];

/// Mutants that no test of the suite notices by their own clause yet: a scenario or a check is missing there. Whoever adds
/// it takes the name out of this list.
const UNNOTICED: &[&str] = &["repair-astray", "takes-other-address"];

fn definitions() -> impl Iterator<Item = &'static Definition> {
    CONCERNS.iter().flat_map(|concern| concern.iter())
}

/// Every mutant that the suite must notice, concern by concern.
pub fn all() -> impl Iterator<Item = &'static MutantInfo> {
    definitions()
        .map(|(info, _)| info)
        .filter(|info| !UNNOTICED.contains(&info.id))
}

/// Mutants that work like the others, but that no test of the suite notices by their own clause yet.
pub fn unnoticed() -> impl Iterator<Item = &'static MutantInfo> {
    definitions()
        .map(|(info, _)| info)
        .filter(|info| UNNOTICED.contains(&info.id))
}

/// Every fake.
pub fn fakes() -> impl Iterator<Item = &'static FakeInfo> {
    fakes::ALL.iter().map(|(info, _)| info)
}

/// The mutant or fake of that name.
pub fn by_id(id: &str) -> Option<Mutant> {
    let mutant = definitions().find(|(info, _)| info.id == id);
    let fake = || fakes::ALL.iter().find(|(info, _)| info.id == id);
    match mutant {
        Some((_, make)) => Some(Mutant(Make::Edited(*make))),
        None => fake().map(|(_, make)| Mutant(Make::Whole(*make))),
    }
}

impl Mutant {
    /// An endpoint with the mutant at its edge, or the fake in its place.
    ///
    /// # Errors
    /// [`Misuse`] as from [`Endpoint::new`].
    pub fn engine(&self, config: Config) -> Result<Box<dyn Engine>, Misuse> {
        match self.0 {
            Make::Edited(make) => {
                let local = config.local;
                let endpoint = Endpoint::new(config)?;
                Ok(Box::new(Mutated::new(endpoint, local, make())))
            }
            Make::Whole(make) => Ok(make(config)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_found() {
        let fakes = fakes().map(|info| info.id);
        let mutants = all().chain(unnoticed()).map(|info| info.id);
        let ids: Vec<&str> = mutants.chain(fakes).collect();
        let unique: BTreeSet<&str> = ids.iter().copied().collect();
        assert_eq!(ids.len(), unique.len());
        assert!(ids.iter().all(|id| by_id(id).is_some()));
        assert!(by_id("no-such-mutant").is_none());
        assert_eq!(unnoticed().count(), UNNOTICED.len());
    }

    #[test]
    fn clauses_look_like_clauses_and_are_declared_once() {
        let is_id = |id: &str| {
            id.split_once('-').is_some_and(|(chapter, number)| {
                ["CONV", "PKT", "CONN", "STRM", "PATH", "REL", "ECN"].contains(&chapter)
                    && number.len() == 3
                    && number.bytes().all(|digit| digit.is_ascii_digit())
            })
        };
        for info in all().chain(unnoticed()) {
            assert!(is_id(info.clause), "{}", info.id);
            assert!(info.declared.iter().all(|id| is_id(id)), "{}", info.id);
            assert!(!info.declared.contains(&info.clause), "{}", info.id);
            assert_eq!(
                info.declared.is_empty(),
                info.because.is_empty(),
                "{}",
                info.id
            );
        }
        let clauses: BTreeSet<&str> = all().map(|info| info.clause).collect();
        assert!(all().count() >= 22 && clauses.len() >= 18);
    }
}
