//! Rules that one packet keeps or breaks, given what was before it.

use super::{Context, Monitor, Tally};
use crate::model::Sighting;

/// What a check says of a packet.
pub(super) enum Outcome {
    /// The rule does not apply.
    Skip,
    /// It applies and holds.
    Held,
    /// It applies and is broken: expected, seen.
    Broken(String, String),
}

/// A rule for one packet.
pub(super) struct Check(pub fn(&Sighting<'_>, &Context<'_>) -> Outcome);

impl Monitor for Check {
    fn sighting(&mut self, s: &Sighting<'_>, c: &Context<'_>, tally: &mut Tally) {
        match (self.0)(s, c) {
            Outcome::Skip => {}
            Outcome::Held => tally.held(),
            Outcome::Broken(expected, seen) => tally.broken(vec![s.frame], expected, seen),
        }
    }
}

/// The rule that two values are equal.
pub(super) fn equal<T: PartialEq + std::fmt::Debug>(what: &str, expected: T, seen: T) -> Outcome {
    if expected == seen {
        Outcome::Held
    } else {
        Outcome::Broken(format!("{what} {expected:?}"), format!("{seen:?}"))
    }
}

/// The rule that something holds.
pub(super) fn holds(what: bool, expected: &str, seen: impl FnOnce() -> String) -> Outcome {
    if what {
        Outcome::Held
    } else {
        Outcome::Broken(expected.into(), seen())
    }
}
