//! The result of a conformance run, and its renderings.
//!
//! A harness fills a [`RunHeader`], one [`TestResult`] per selected test and the list of selected clauses, and
//! [`RunResult::assemble`] draws the verdicts from them. Nothing here reads a clock, a file or the environment: the same
//! input gives the same bytes, so a result can be recomputed from its evidence and compared.
//!
//! Text in a result comes from implementations under test and is not trusted: no rendering lets it out as control
//! characters or as markup.

mod assemble;
pub mod exit;
pub mod json;
pub mod junit;
pub mod markdown;
mod model;
mod render;
pub mod table;
mod text;
mod verdict;
mod view;

pub use assemble::{AssembleError, ClauseInfo, RunHeader};
pub use exit::exit_code;
pub use model::{
    AdapterExit, ClauseResult, Conduct, Counts, Finding, IutInfo, RunResult, SCHEMA_NAME,
    Selection, Side, Summary, TestResult, Unmonitored, Versions, Violation,
};
pub use render::RenderError;
pub use verdict::Verdict;
