//! Rules that one packet keeps or breaks, given what came before it.

use std::fmt::Display;

use metaroce_wire::metaroce::Cbh;

use super::panel::{Monitor, Tally};
use crate::model::{AckSent, DataSent, MessageSent, Model, Relation, Sighting};

/// What a rule says of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It does not apply.
    Skip,
    /// It is kept.
    Held,
    /// It applies, and whether it is kept cannot be told: why.
    Unsure(String),
    /// It is broken: what was expected, what was seen.
    Broken(String, String),
    /// The same, with other frames that belong to the finding.
    BrokenWith(Vec<u64>, String, String),
}

/// A rule for one packet.
pub type Rule = fn(&Sighting<'_>, &Model) -> Found;

/// A rule as a monitor.
pub struct Check(pub Rule);

impl Monitor for Check {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, tally: &mut Tally) {
        note(tally, s.frame, (self.0)(s, model));
    }
}

/// Counts what a rule said of the packet in `frame`.
pub(super) fn note(tally: &mut Tally, frame: u64, found: Found) {
    match found {
        Found::Skip => {}
        Found::Held => tally.held(),
        Found::Unsure(why) => {
            tally.met();
            tally.unsure(|| why);
        }
        Found::Broken(expected, seen) => tally.broken(vec![frame], expected, seen),
        Found::BrokenWith(mut frames, expected, seen) => {
            frames.retain(|other| *other != 0 && *other != frame);
            frames.push(frame);
            tally.broken(frames, expected, seen);
        }
    }
}

/// Held or broken.
pub(super) fn holds(ok: bool, expected: impl Display, seen: impl FnOnce() -> String) -> Found {
    if ok {
        Found::Held
    } else {
        Found::Broken(expected.to_string(), seen())
    }
}

/// Held when the two are equal.
pub(super) fn equal<T: PartialEq + Display>(name: &str, expected: T, seen: T) -> Found {
    if expected == seen {
        Found::Held
    } else {
        Found::Broken(format!("{name} {expected}"), format!("{name} {seen}"))
    }
}

/// A rule for every packet that the judged side sends.
pub(super) fn sent(s: &Sighting<'_>, rule: impl FnOnce(&Cbh) -> Found) -> Found {
    match s.cbh {
        Some(cbh) if s.sent => rule(&cbh),
        _ => Found::Skip,
    }
}

/// A rule for the data that the judged side sends on a connection.
pub(super) fn data(s: &Sighting<'_>, rule: impl FnOnce(&Cbh, &DataSent) -> Found) -> Found {
    match (&s.relation, s.cbh) {
        (Relation::DataSent(sent), Some(cbh)) => rule(&cbh, sent),
        _ => Found::Skip,
    }
}

/// A rule for first transmissions.
pub(super) fn new_data(s: &Sighting<'_>, rule: impl FnOnce(&Cbh, &DataSent) -> Found) -> Found {
    data(s, |cbh, sent| match sent.before {
        None => rule(cbh, sent),
        Some(_) => Found::Skip,
    })
}

/// A rule for the data of known streams.
pub(super) fn message(
    s: &Sighting<'_>,
    rule: impl FnOnce(&Cbh, &DataSent, &MessageSent) -> Found,
) -> Found {
    data(s, |cbh, sent| match &sent.message {
        Some(message) => rule(cbh, sent, message),
        None => Found::Skip,
    })
}

/// A rule for the acknowledgments that the judged side sends.
pub(super) fn ack(s: &Sighting<'_>, rule: impl FnOnce(&Cbh, &AckSent) -> Found) -> Found {
    match (&s.relation, s.cbh) {
        (Relation::AckSent(ack), Some(cbh)) => rule(&cbh, ack),
        _ => Found::Skip,
    }
}

/// The list of a file's monitors: clause, purpose, and how each is made.
macro_rules! rules {
    ($file:literal : $( $clause:literal $purpose:literal => $make:expr ; )+) => {
        /// The monitors of this file.
        pub(super) const MONITORS: &[$crate::monitors::Entry] = &[ $(
            $crate::monitors::Entry { clause: $clause, file: $file, purpose: $purpose, make: $make },
        )+ ];
    };
}
pub(super) use rules;
