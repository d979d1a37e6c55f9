//! What the harness saw on the wire, and the capture files that hold it.

pub mod pcapng;

use serde::{Deserialize, Serialize};

/// One of the two parties of a test, and the tap next to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The initiator of the connection.
    A,
    /// The acceptor.
    B,
}

impl Side {
    /// Both sides, in order.
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    /// The opposite side.
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// Position in an array of two: 0 for A, 1 for B.
    pub const fn index(self) -> usize {
        match self {
            Self::A => 0,
            Self::B => 1,
        }
    }
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::A => "a",
            Self::B => "b",
        })
    }
}

/// A packet at a tap. A packet from A is seen at tap `a` when it enters the link and at tap `b` when it leaves it; one
/// that the link dropped is missing at `b`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// Time since the start of the test, ns.
    pub time_ns: u64,
    /// Where it was seen.
    pub tap: Side,
    /// Which party sent it.
    pub from: Side,
    /// The IP packet, headers included.
    pub frame: Vec<u8>,
    /// What the injector does to it: only at the tap next to its sender, in the order of the rules.
    pub notes: Vec<Note>,
}

/// A rule that acted on a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Id of the rule.
    pub rule: String,
    /// What it did, as in the scenario: `drop`, `delay`, `duplicate`, `mark_ce`, `clear_ecn`, `corrupt`, ...
    pub action: String,
}
