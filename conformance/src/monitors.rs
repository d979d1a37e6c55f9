//! The monitors: each judges one clause for one judged side.
//!
//! A monitor sees the packets at the tap of its side and what the parties said, in order, and counts how often the clause
//! was exercised and where it was violated. It knows nothing of where the trace came from. Rules of the kind "not after it
//! was told" count only what was delivered longer ago than the allowance of the link, and every deadline is loosened by it.

mod acks;
mod check;
mod completions;
mod conventions;
mod due;
mod ecn;
mod handshake;
mod messages;
mod packets;
mod panel;
mod paths;
mod placement;
mod probes;
mod prompt;
mod repair;
mod requests;
mod streams;
mod timeouts;

pub use check::{Check, Found};
pub use panel::{
    Entry, Make, Monitor, Panel, RESERVE, Tally, catalogue, coverage, everything, merge,
};
