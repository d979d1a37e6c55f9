//! The crate from outside: verdicts and renderings.
#![expect(
    clippy::unwrap_used,
    reason = "a panic in the helpers of a test is a failed test"
)]

mod goldens;
mod json;
mod junit;
mod people;
mod sample;
mod verdicts;
