//! The kill matrix: every mutant fails on its clause, and on no other that was not declared beforehand.

#![cfg(feature = "reference")]

use metaroce_conformance::cli;
use serde_json::Value;

#[test]
fn every_mutant_is_noticed_where_it_breaks_the_rules() {
    let (matrix, complete) = cli::mutants(true, false, &mut |_| {}).unwrap();
    let matrix: Value = serde_json::from_str(&matrix).unwrap();
    let rows = matrix["mutants"].as_array().unwrap();
    let clauses: std::collections::BTreeSet<&str> = rows
        .iter()
        .map(|row| row["clause"].as_str().unwrap())
        .collect();
    assert!(rows.len() >= 15 && clauses.len() >= 12);
    let amiss = |row: &&Value| {
        let declared = row["declared"].as_array().unwrap();
        let failed = row["failed_clauses"].as_array().unwrap();
        let own = &row["clause"];
        !failed.contains(own) || failed.iter().any(|id| id != own && !declared.contains(id))
    };
    let wrong: Vec<String> = rows.iter().filter(amiss).map(Value::to_string).collect();
    assert!(wrong.is_empty() && complete, "{}", wrong.join("\n"));
}
