//! The reference endpoint in simulated time: every monitored clause passes, the evidence gives the same result again,
//! and damaged evidence gives an error.

#![cfg(feature = "reference")]
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::Path;

use metaroce_conformance::evidence::CAPTURE;
use metaroce_conformance::monitors;
use metaroce_conformance::run::{Plan, RESULT, analyze, run};
use metaroce_reports::{RunResult, Verdict, exit};

fn plan(filter: Option<&str>) -> Plan {
    Plan {
        filter: filter.map(str::to_owned),
        ..Plan::reference().unwrap()
    }
}

fn go(folder: &Path, filter: Option<&str>) -> RunResult {
    run(&plan(filter), folder, &mut |_, _, _| {}).unwrap()
}

#[test]
fn the_reference_passes_every_monitored_clause_and_analysis_agrees() {
    let folder = tempfile::tempdir().unwrap();
    let result = go(folder.path(), None);
    for clause in &result.clauses {
        assert_eq!(
            clause.verdict,
            Verdict::Pass,
            "{}: {:?}",
            clause.id,
            clause.reason
        );
        assert!(clause.exercised > 0, "{}", clause.id);
    }
    assert!(result.clauses.len() >= 40);
    assert_eq!(exit::exit_code(&result), exit::PASS);
    let stored = std::fs::read_to_string(folder.path().join(RESULT)).unwrap();
    let again = metaroce_reports::json::render(&analyze(folder.path()).unwrap()).unwrap();
    assert!(stored == again);
}

/// Every file below a folder, by its path there.
fn files(folder: &Path) -> std::collections::BTreeMap<std::path::PathBuf, Vec<u8>> {
    let mut found = std::collections::BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_owned();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let tests = go(one.path(), None).tests.len();
    go(two.path(), None);
    let (one, two) = (files(one.path()), files(two.path()));
    // Three files for each test, and two for the run.
    assert_eq!(one.len(), 3 * tests + 2);
    assert!(one.keys().eq(two.keys()));
    let differ: Vec<_> = one.keys().filter(|name| one[*name] != two[*name]).collect();
    assert!(differ.is_empty(), "{differ:?}");
}

#[test]
fn damaged_evidence_passes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    go(folder.path(), Some("id(write-lossless) or id(one-path)"));
    let capture = folder.path().join("write-lossless").join(CAPTURE);
    let whole = std::fs::read(&capture).unwrap();
    let other = std::fs::read(folder.path().join("one-path").join(CAPTURE)).unwrap();
    for damaged in [
        Vec::new(),
        whole[..whole.len() / 2].to_vec(),
        other,
        b"garbage".to_vec(),
    ] {
        std::fs::write(&capture, &damaged).unwrap();
        let result = analyze(folder.path()).unwrap();
        let test = result
            .tests
            .iter()
            .find(|test| test.id == "write-lossless")
            .unwrap();
        assert_eq!(test.verdict, Verdict::Error, "{} bytes", damaged.len());
        assert!(
            result
                .clauses
                .iter()
                .all(|clause| clause.verdict == Verdict::Error)
        );
        assert_ne!(exit::exit_code(&result), exit::PASS);
    }
    std::fs::remove_file(&capture).unwrap();
    assert_ne!(
        exit::exit_code(&analyze(folder.path()).unwrap()),
        exit::PASS
    );
}

#[test]
fn a_declaration_that_was_changed_does_not_give_the_same_result() {
    let folder = tempfile::tempdir().unwrap();
    go(folder.path(), Some("id(write-lossless)"));
    let stored = std::fs::read_to_string(folder.path().join(RESULT)).unwrap();
    let file = folder.path().join("write-lossless/test.json");
    let whole = std::fs::read_to_string(&file).unwrap();
    for (from, to) in [
        ("\"allowance_ns\": 0", "\"allowance_ns\": 1000000000"),
        ("\"seed\": 1", "\"seed\": 7"),
        ("\"link\": \"sim\"", "\"link\": \"wire\""),
    ] {
        assert!(whole.contains(from), "{from}");
        std::fs::write(&file, whole.replacen(from, to, 1)).unwrap();
        let again = metaroce_reports::json::render(&analyze(folder.path()).unwrap()).unwrap();
        assert!(stored != again, "{to}");
    }
    std::fs::write(&file, whole).unwrap();
    let again = metaroce_reports::json::render(&analyze(folder.path()).unwrap()).unwrap();
    assert!(stored == again);
}

#[test]
fn every_monitored_clause_is_in_the_specification() {
    let clauses = metaroce_spec::clauses().unwrap();
    let known: std::collections::BTreeSet<String> =
        clauses.into_iter().map(|clause| clause.id).collect();
    let mut seen = std::collections::BTreeSet::new();
    for entry in monitors::catalogue() {
        assert!(known.contains(entry.clause), "{}", entry.clause);
        assert!(
            seen.insert(entry.clause),
            "{} has two monitors",
            entry.clause
        );
    }
}

#[test]
fn the_lock_file_is_what_the_sources_give() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../spec/clauses.lock");
    let stored = std::fs::read_to_string(path).unwrap();
    let fresh = metaroce_conformance::cli::lock().unwrap();
    assert!(
        stored == fresh,
        "spec/clauses.lock is stale: write it with `metaroce clauses --lock`"
    );
}

#[test]
fn clauses_for_a_role_that_is_not_claimed_are_not_applicable() {
    let folder = tempfile::tempdir().unwrap();
    let mut plan = plan(Some("id(write-lossless*)"));
    plan.pics.roles = vec![metaroce_conformance::pics::Role::Acceptor];
    // A party of its own on each side, as with an adapter.
    plan.mutant = Some("null".into());
    let result = run(&plan, folder.path(), &mut |_, _, _| {}).unwrap();
    let tests: Vec<_> = result
        .tests
        .iter()
        .map(|test| (test.id.as_str(), test.verdict))
        .collect();
    assert_eq!(
        tests[0],
        ("write-lossless.initiator", Verdict::NotApplicable)
    );
    for clause in result.clauses {
        let excluded = clause.role == "initiator";
        assert_eq!(
            clause.verdict == Verdict::NotApplicable,
            excluded,
            "{}",
            clause.id
        );
    }
}
