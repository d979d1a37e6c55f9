//! Sessions of the adapter over a simulated link, driven by lines as a harness would.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod features;
mod link;
mod mutants;
mod protocol;
