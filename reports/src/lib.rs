//! The result of a conformance run, and its renderings.
//!
//! A harness fills a [`RunHeader`], one [`TestResult`] per selected test and the list of selected clauses, and
//! [`RunResult::assemble`] draws the verdicts from them. Nothing here reads a clock, a file or the environment: the same
//! input gives the same bytes, so a result can be recomputed from its evidence and compared.

mod assemble;
pub mod exit;
mod model;
mod verdict;

pub use assemble::{AssembleError, ClauseInfo, RunHeader};
pub use exit::exit_code;
pub use model::{
    AdapterExit, ClauseResult, Conduct, Counts, Finding, IutInfo, RunResult, SCHEMA_NAME,
    Selection, Side, Summary, TestResult, Unmonitored, Versions, Violation,
};
pub use verdict::Verdict;
