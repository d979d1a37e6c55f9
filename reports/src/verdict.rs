//! Verdicts and how they combine.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What was found out about a clause, in one test or over a run.
///
/// The order of the variants is the order of strength, weakest first; [`Verdict::combine`] and `Ord` follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Outside of what the implementation claims, by its PICS alone. Gives way to every other verdict.
    NotApplicable,
    /// Exercised at least once, never violated, and the surroundings were sound.
    Pass,
    /// Nothing can be said: not exercised, a stimulus not delivered, a measurement too coarse.
    Inconclusive,
    /// Violated by the implementation.
    Fail,
    /// The harness is at fault; says nothing about the implementation.
    Error,
}

impl Verdict {
    /// All verdicts, weakest first.
    pub const ALL: [Self; 5] = [
        Self::NotApplicable,
        Self::Pass,
        Self::Inconclusive,
        Self::Fail,
        Self::Error,
    ];

    /// The stronger of the two.
    #[must_use]
    pub fn combine(self, other: Self) -> Self {
        self.max(other)
    }

    /// The word for people, for example `not applicable`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotApplicable => "not applicable",
            Self::Pass => "pass",
            Self::Inconclusive => "inconclusive",
            Self::Fail => "fail",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
