//! Endpoints that do nothing, send everything back, or acknowledge everything pass no clause.

#![cfg(feature = "reference")]
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use metaroce_conformance::run::{Plan, run};
use metaroce_reports::{Verdict, exit};

fn passes_nothing(fake: &str) {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan {
        mutant: Some(fake.into()),
        ..Plan::reference().unwrap()
    };
    let result = run(&plan, folder.path(), &mut |_, _, _| {}).unwrap();
    let passed: Vec<_> = result
        .clauses
        .iter()
        .filter(|clause| clause.verdict == Verdict::Pass)
        .map(|clause| (&clause.id, &clause.tests))
        .collect();
    assert!(passed.is_empty(), "{fake} passes {passed:?}");
    let sound: Vec<_> = result
        .tests
        .iter()
        .filter(|test| test.verdict == Verdict::Pass)
        .map(|test| &test.id)
        .collect();
    assert!(sound.is_empty(), "{fake} passes the tests {sound:?}");
    assert_ne!(exit::exit_code(&result), exit::PASS);
}

#[test]
fn the_null_endpoint_passes_nothing() {
    passes_nothing("null");
}

#[test]
fn the_echo_endpoint_passes_nothing() {
    passes_nothing("echo");
}

#[test]
fn the_endpoint_that_acknowledges_everything_passes_nothing() {
    passes_nothing("ack-everything");
}
