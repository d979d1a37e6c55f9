//! Two parties and the link between them, under one interface for simulated time and for real sockets.

mod relay;
#[cfg(feature = "reference")]
mod sim;

use serde_json::Value;

use crate::evidence::RuleCount;
use crate::iut::{PartyError, Report, Request};
use crate::tester::{Setup, Step, Tester};
use crate::trace::Side;

pub use relay::RelayBed;
#[cfg(feature = "reference")]
pub use sim::{SimBed, SimParty};

/// Why a testbed cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BedError {
    /// A party is to blame.
    #[error("{error}")]
    Party {
        /// Which.
        side: Side,
        /// What it did.
        error: PartyError,
    },
    /// The harness is to blame, or the machine.
    #[error("{0}")]
    Harness(String),
}

impl BedError {
    /// A fault of the party on `side`.
    pub fn party(side: Side, error: PartyError) -> Self {
        Self::Party { side, error }
    }

    /// A fault of the harness itself.
    pub fn harness(message: impl ToString) -> Self {
        Self::Harness(message.to_string())
    }

    /// The party that is to blame; none where it is the harness.
    pub fn side(&self) -> Option<Side> {
        match self {
            Self::Party { side, .. } => Some(*side),
            Self::Harness(_) => None,
        }
    }
}

/// What is known of a link once the test is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkEnd {
    /// How often each rule acted.
    pub rules: Vec<RuleCount>,
    /// Packets still inside, from A and from B.
    pub held: [u64; 2],
    /// Largest lateness of the harness, ns.
    pub jitter_ns: u64,
    /// How the adapter on each side ended, where it did not end well.
    pub ends: [Option<String>; 2],
}

/// Two parties and the link between them.
pub trait Testbed {
    /// Time since the start of the test, ns.
    fn now(&self) -> u64;

    /// Asks the party on `side` for something.
    ///
    /// # Errors
    /// [`BedError`].
    fn call(&mut self, side: Side, request: &Request) -> Result<Value, BedError>;

    /// Lets traffic flow until a party reports something, the tester makes progress, or `until` ns is reached.
    ///
    /// # Errors
    /// [`BedError`].
    fn poll(&mut self, until: u64) -> Result<Vec<(Side, Report)>, BedError>;

    /// Sets a scripted peer on `side`.
    ///
    /// # Errors
    /// [`BedError`] when it cannot take its address.
    fn start_tester(&mut self, side: Side, setup: Setup, steps: &[Step]) -> Result<(), BedError>;

    /// The scripted peer, where there is one.
    fn tester(&self) -> Option<&Tester>;

    /// Ends the parties, then the link.
    ///
    /// # Errors
    /// [`BedError`] when the link or its capture failed.
    fn finish(self: Box<Self>) -> Result<LinkEnd, BedError>;
}
