//! Exit codes of the programs that run the suite. They are an interface: numbers never change their meaning.

use crate::{RunResult, Verdict};

/// Every selected clause passes, apart from those the PICS excludes.
pub const PASS: u8 = 0;
/// At least one clause failed.
pub const FAIL: u8 = 1;
/// Wrong use of the command line, or an input that cannot be read.
pub const USAGE: u8 = 2;
/// Nothing failed, and at least one clause or test is inconclusive.
pub const INCONCLUSIVE: u8 = 3;
/// The harness is at fault, or nothing was selected, or nothing was left to judge.
pub const HARNESS: u8 = 4;

/// The exit code that a result asks for, by [`RunResult::verdict`]: a harness error hides a failure, a failure what is
/// inconclusive. A run that judged nothing is [`HARNESS`].
#[must_use]
pub fn exit_code(result: &RunResult) -> u8 {
    match result.verdict() {
        Verdict::Error | Verdict::NotApplicable => HARNESS,
        Verdict::Fail => FAIL,
        Verdict::Inconclusive => INCONCLUSIVE,
        Verdict::Pass => PASS,
    }
}
