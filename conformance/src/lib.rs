//! The conformance harness: links with injection, traces, monitors and verdicts.
//!
//! One flow: `link -> trace -> monitors -> verdicts -> reports`. Links write what they see into an evidence folder;
//! every verdict is computed by reading that folder back ([`judge`]), so that it can be recomputed at any time.

pub mod evidence;
pub mod trace;
