//! The Wireshark dissector against the parser and against a model of the links: the golden packets, packets with random
//! changes, captures that cut their frames, and every capture of a run in simulated time.
//!
//! The tests need tshark 4.0 or later, with editcap beside it, so that they run with `-- --ignored` alone.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod golden;
#[cfg(feature = "reference")]
mod links;
mod packets;
#[cfg(feature = "reference")]
mod run;
mod tshark;
