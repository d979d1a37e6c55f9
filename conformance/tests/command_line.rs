//! The command as people call it: what it refuses names what and where, with exit code 2.

#![cfg(feature = "reference")]
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::Path;
use std::process::{Command, Output};

use metaroce_reports::exit;

fn metaroce(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_metaroce"));
    command.args(arguments).current_dir(folder);
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Expects exit code 2, an empty standard output, and every one of `words` in the message.
fn refused(folder: &Path, arguments: &[&str], words: &[&str]) {
    let output = metaroce(folder, arguments);
    let message = text(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(i32::from(exit::USAGE)),
        "{arguments:?}: {message}"
    );
    assert_eq!(text(&output.stdout), "", "{arguments:?}");
    for word in words {
        assert!(
            message.contains(word),
            "{arguments:?}: no {word:?} in: {message}"
        );
    }
}

#[test]
fn bad_filters_are_refused_by_column() {
    let folder = tempfile::tempdir().unwrap();
    let run = |filter: &str, words: &[&str]| {
        refused(
            folder.path(),
            &["run", "--link", "sim", "--filter", filter],
            words,
        );
    };
    run("clause(REL-31)", &["line 1, column 8", "clause REL-31"]);
    run(
        "clause(XYZ-*) or tag(loss)",
        &["line 1, column 8", "clause XYZ-*"],
    );
    run("tag(lost)", &["line 1, column 5", "tag lost"]);
    run(
        "id(write-losless)",
        &["line 1, column 4", "test write-losless"],
    );
    run("id(one-path) and", &["line 1, column 17", "expected"]);
    run("id(one-path) and tag(tester)", &["column 1", "no test"]);
    refused(
        folder.path(),
        &["explain", "XYZ-001"],
        &["no clause XYZ-001"],
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn bad_scenarios_and_claims_are_refused_by_file_line_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.yaml");
    let scenario = |text: &str, words: &[&str]| {
        std::fs::write(&file, text).unwrap();
        refused(
            folder.path(),
            &["run", "--link", "sim", "--scenarios", "mine.yaml"],
            words,
        );
    };
    let head = "id: mine\ntitle: t\n";
    scenario(
        &format!("{head}work:\n  - write: {{from: a, size: 1024}}\n"),
        &["mine.yaml", "line 4", "column"],
    );
    scenario(
        &format!("{head}work:\n  - write: {{from: a, size: 1KiB, speed: 1}}\n"),
        &["mine.yaml", "line 4", "column", "speed"],
    );
    scenario(
        &format!("{head}work: [\n"),
        &["mine.yaml", "line", "column"],
    );
    scenario(head, &["mine.yaml", "mine", "nothing would be sent"]);
    scenario("", &["mine.yaml"]);
    std::fs::remove_file(&file).unwrap();
    refused(
        folder.path(),
        &["run", "--link", "sim", "--scenarios", "mine.yaml"],
        &["mine.yaml"],
    );
    refused(
        folder.path(),
        &["run", "--link", "sim", "--scenarios", "."],
        &["holds no scenario"],
    );

    let claims = |text: &str, words: &[&str]| {
        std::fs::write(&file, text).unwrap();
        refused(
            folder.path(),
            &["run", "--link", "sim", "--pics", "mine.yaml"],
            words,
        );
    };
    let sound = metaroce_conformance::pics::REFERENCE;
    claims(
        &sound.replace("max_paths: 256", "max_paths: many"),
        &["mine.yaml", "line 10", "column"],
    );
    claims(
        &format!("{sound}wishes: 1\n"),
        &["mine.yaml", "line 19", "column", "wishes"],
    );
    claims(
        &sound.replace("features: []", "features: [flying]"),
        &["mine.yaml", "no feature \"flying\"", "atomics"],
    );
    claims(
        &sound.replace("[send, write]", "[send, fly]"),
        &["mine.yaml", "line 8", "column", "fly"],
    );
}

#[test]
fn a_filter_by_clause_passes_when_the_clause_does() {
    let folder = tempfile::tempdir().unwrap();
    let output = metaroce(
        folder.path(),
        &[
            "run",
            "--link",
            "sim",
            "--out",
            "run",
            "--filter",
            "clause(REL-031)",
            "--format",
            "json",
        ],
    );
    assert_eq!(
        output.status.code(),
        Some(i32::from(exit::PASS)),
        "{}",
        text(&output.stderr)
    );
    let result: metaroce_reports::RunResult = serde_json::from_slice(&output.stdout).unwrap();
    let clauses: Vec<&str> = result
        .clauses
        .iter()
        .map(|clause| clause.id.as_str())
        .collect();
    assert_eq!(clauses, ["REL-031"]);
    let again = metaroce(folder.path(), &["analyze", "run", "--format", "json"]);
    assert_eq!(again.status.code(), Some(i32::from(exit::PASS)));
    assert!(again.stdout == output.stdout);
}

#[test]
fn a_folder_of_something_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("mine")).unwrap();
    std::fs::write(folder.path().join("mine/letter.txt"), "dear").unwrap();
    let arguments = [
        "run",
        "--link",
        "sim",
        "--filter",
        "id(one-path)",
        "--out",
        "mine",
    ];
    refused(folder.path(), &arguments, &["mine", "something else"]);
    let onto_a_file = [
        "run",
        "--link",
        "sim",
        "--filter",
        "id(one-path)",
        "--out",
        "mine/letter.txt",
    ];
    refused(folder.path(), &onto_a_file, &["letter.txt"]);
    let lock = std::fs::File::open(folder.path().join("mine")).unwrap();
    lock.lock().unwrap();
    refused(folder.path(), &arguments, &["mine", "another run"]);
    refused(folder.path(), &["analyze", "mine"], &["mine", "run.json"]);
    assert_eq!(
        std::fs::read_to_string(folder.path().join("mine/letter.txt")).unwrap(),
        "dear"
    );
}

#[test]
fn claims_that_the_adapter_contradicts_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let claims =
        metaroce_conformance::pics::REFERENCE.replace("[initiator, acceptor]", "[acceptor]");
    std::fs::write(folder.path().join("pics.yaml"), claims).unwrap();
    let adapter = format!("{} endpoint", env!("CARGO_BIN_EXE_metaroce"));
    let arguments = ["run", "--adapter", &adapter, "--pics", "pics.yaml"];
    refused(
        folder.path(),
        &arguments,
        &["contradicts its PICS", "roles"],
    );
}

#[test]
fn the_reference_behind_an_adapter_is_certified_in_both_roles() {
    let folder = tempfile::tempdir().unwrap();
    let adapter = format!("{} endpoint", env!("CARGO_BIN_EXE_metaroce"));
    let filter = "id(write-lossless*)";
    let arguments = [
        "run",
        "--adapter",
        &adapter,
        "--out",
        "run",
        "--filter",
        filter,
        "--format",
        "json",
    ];
    let output = metaroce(folder.path(), &arguments);
    let result: metaroce_reports::RunResult = serde_json::from_slice(&output.stdout).unwrap();
    let tests: Vec<_> = result
        .tests
        .iter()
        .map(|t| (t.id.as_str(), t.verdict))
        .collect();
    let pass = metaroce_reports::Verdict::Pass;
    assert_eq!(
        tests,
        [
            ("write-lossless.initiator", pass),
            ("write-lossless.acceptor", pass)
        ],
        "{}",
        text(&output.stderr)
    );
    assert_eq!(result.iut.command, Some(adapter));
    assert_eq!(result.peer.command.as_deref(), Some("metaroce endpoint"));
}

#[test]
fn a_full_disk_is_an_error_of_the_harness() {
    let folder = tempfile::tempdir().unwrap();
    // No file may grow beyond 100 KiB; the signal that says so is ignored, so that writing fails as on a full disk.
    let script = "trap '' XFSZ; ulimit -f 200; exec \"$0\" run --link sim --filter 'id(mixed-lossless) and clause(REL-031)' --out run";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_metaroce")]);
    let output = command.current_dir(folder.path()).output().unwrap();
    let message = text(&output.stderr) + &text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(i32::from(exit::HARNESS)),
        "{message}"
    );
    assert!(
        message.contains("capture.pcapng") && message.contains("too large"),
        "{message}"
    );
    let again = metaroce(folder.path(), &["analyze", "run"]);
    assert_eq!(again.status.code(), Some(i32::from(exit::HARNESS)));
}

#[test]
fn a_run_that_cannot_be_made_leaves_earlier_evidence_alone() {
    let folder = tempfile::tempdir().unwrap();
    let sound = [
        "run",
        "--link",
        "sim",
        "--filter",
        "id(one-path)",
        "--out",
        "run",
    ];
    metaroce(folder.path(), &sound);
    let before = std::fs::read(folder.path().join("run/result.json")).unwrap();
    let adapter = format!("{} endpoint", env!("CARGO_BIN_EXE_metaroce"));
    let arguments = [
        "run",
        "--link",
        "sim",
        "--adapter",
        &adapter,
        "--out",
        "run",
    ];
    refused(folder.path(), &arguments, &["--link relay"]);
    assert!(std::fs::read(folder.path().join("run/result.json")).unwrap() == before);
    // Nor does a later run take away what is not its own.
    let letter = folder.path().join("run/mine");
    std::fs::create_dir(&letter).unwrap();
    std::fs::write(letter.join("test.json"), "dear").unwrap();
    std::fs::write(letter.join("letter.txt"), "dear").unwrap();
    metaroce(folder.path(), &sound);
    assert!(letter.join("letter.txt").is_file() && letter.join("test.json").is_file());
}

#[test]
fn a_folder_of_a_test_s_name_that_is_not_the_suite_s_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let sound = [
        "run",
        "--link",
        "sim",
        "--filter",
        "id(one-path)",
        "--out",
        "run",
    ];
    metaroce(folder.path(), &sound);
    let letter = folder.path().join("run/one-path/letter.txt");
    std::fs::write(&letter, "dear").unwrap();
    refused(folder.path(), &sound, &["one-path", "something else"]);
    assert!(letter.is_file());
}
