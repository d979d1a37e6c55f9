//! The kill matrix: every mutant fails on its clause, and on no other that was not declared beforehand.

#![cfg(feature = "reference")]

use metaroce_conformance::cli;

#[test]
fn every_mutant_is_noticed_where_it_breaks_the_rules() {
    let outcome = cli::mutants(true, false, &mut |_| {});
    let (matrix, complete) = match outcome {
        Ok(outcome) => outcome,
        Err(error) => panic!("{error}"),
    };
    assert!(complete, "{matrix}");
}
