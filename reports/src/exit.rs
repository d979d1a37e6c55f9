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

/// The exit code that a result asks for, the strongest verdict over clauses and tests deciding.
///
/// Tests count besides clauses, because a test that could not be carried out may have left its clauses to others. A run
/// without tests, without clauses or with every clause excluded judged nothing: [`HARNESS`].
#[must_use]
pub fn exit_code(result: &RunResult) -> u8 {
    let clauses = result.clauses.iter().map(|clause| clause.verdict);
    let tests = result.tests.iter().map(|test| test.verdict);
    let strongest = clauses
        .clone()
        .chain(tests)
        .fold(Verdict::NotApplicable, Verdict::combine);
    let judged = clauses.fold(Verdict::NotApplicable, Verdict::combine) != Verdict::NotApplicable;
    if !judged || result.tests.is_empty() {
        return HARNESS;
    }
    match strongest {
        Verdict::Error | Verdict::NotApplicable => HARNESS,
        Verdict::Fail => FAIL,
        Verdict::Inconclusive => INCONCLUSIVE,
        Verdict::Pass => PASS,
    }
}
