//! The conformance harness: links with injection, traces, monitors and verdicts.
//!
//! One flow: `link -> trace -> monitors -> verdicts -> reports`. Links write what they see into an evidence folder;
//! every verdict is computed by reading that folder back, so that it can be recomputed at any time.

pub mod book;
pub mod cli;
pub mod coverage;
pub mod evidence;
pub mod filter;
pub mod inject;
pub mod iut;
pub mod judge;
pub mod link;
pub mod model;
pub mod monitors;
pub mod payload;
pub mod pics;
pub mod program;
pub mod query;
pub mod run;
pub mod scenario;
pub mod testbed;
pub mod tester;
pub mod trace;
pub mod units;
mod yaml;
