//! The judge over damaged, contradictory and empty evidence: never a panic, never a pass.

#![cfg(feature = "reference")]
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::{Path, PathBuf};

use metaroce_conformance::evidence::{
    CAPTURE, DECLARATION, Declaration, EVENTS, Event, Problem, What,
};
use metaroce_conformance::judge::{file_sha256, judge};
use metaroce_conformance::run::{Plan, run};
use metaroce_conformance::trace::pcapng::{TraceReader, TraceWriter};
use metaroce_conformance::trace::{Observation, Side};
use metaroce_reports::{Conduct, TestResult, Verdict};

/// The evidence of one sound test.
struct Evidence {
    _keep: tempfile::TempDir,
    folder: PathBuf,
}

impl Evidence {
    fn new(test: &str) -> Self {
        let keep = tempfile::tempdir().unwrap();
        let plan = Plan {
            filter: Some(format!("id({test})")),
            ..Plan::reference().unwrap()
        };
        run(&plan, keep.path(), &mut |_, _, _| {}).unwrap();
        let folder = keep.path().join(test);
        Self {
            _keep: keep,
            folder,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn declare(&self, change: impl FnOnce(&mut Declaration)) {
        let text = std::fs::read_to_string(self.path(DECLARATION)).unwrap();
        let mut declaration: Declaration = serde_json::from_str(&text).unwrap();
        declaration.capture_sha256 = file_sha256(&self.path(CAPTURE)).unwrap();
        declaration.events_sha256 = file_sha256(&self.path(EVENTS)).unwrap();
        change(&mut declaration);
        let text = serde_json::to_string(&declaration).unwrap();
        std::fs::write(self.path(DECLARATION), text).unwrap();
    }

    fn events(&self, change: impl FnOnce(&mut Vec<Event>)) {
        let text = std::fs::read_to_string(self.path(EVENTS)).unwrap();
        let read = |line: &str| serde_json::from_str(line).unwrap();
        let mut events: Vec<Event> = text.lines().map(read).collect();
        change(&mut events);
        let line = |event: &Event| serde_json::to_string(event).unwrap() + "\n";
        let text: String = events.iter().map(line).collect();
        std::fs::write(self.path(EVENTS), text).unwrap();
        self.declare(|_| {});
    }

    fn capture(&self, change: impl FnOnce(&mut Vec<Observation>)) {
        let path = self.path(CAPTURE);
        let reader = TraceReader::open(&path).unwrap();
        let mut all: Vec<Observation> = reader.map(|item| item.unwrap().1).collect();
        change(&mut all);
        let mut writer = TraceWriter::create(&path, "changed by a test").unwrap();
        all.iter().for_each(|seen| writer.write(seen).unwrap());
        writer.finish().unwrap();
        self.declare(|_| {});
    }

    fn judge(&self) -> TestResult {
        judge(&self.folder).unwrap()
    }
}

fn passes(result: &TestResult) -> usize {
    let good = |finding: &&metaroce_reports::Finding| finding.verdict == Verdict::Pass;
    result.findings.iter().filter(good).count()
}

/// Asserts that a test came out inconclusive for a reason that says `why`.
fn assert_void(result: &TestResult, why: &str) {
    assert_eq!(result.conduct, Conduct::Inconclusive, "{why}");
    let reason = result.reason.clone().unwrap_or_default();
    assert!(reason.contains(why), "{reason:?} does not say {why:?}");
}

#[test]
fn sound_evidence_passes() {
    let evidence = Evidence::new("gap-in-a-write");
    let result = evidence.judge();
    assert_eq!(result.conduct, Conduct::Sound);
    assert!(passes(&result) > 80, "{}", passes(&result));
    assert!(
        result
            .findings
            .iter()
            .all(|finding| finding.violation_count() == 0)
    );
}

#[test]
fn files_that_are_missing_cut_or_replaced_are_errors() {
    for name in [CAPTURE, EVENTS, DECLARATION] {
        let evidence = Evidence::new("write-lossless");
        let whole = std::fs::read(evidence.path(name)).unwrap();
        for len in [0, 1, whole.len() / 2, whole.len() - 1] {
            std::fs::write(evidence.path(name), &whole[..len]).unwrap();
            assert!(judge(&evidence.folder).is_err(), "{name}, {len} bytes");
        }
        std::fs::write(evidence.path(name), b"\x0a\x0d\x0d\x0a garbage").unwrap();
        assert!(judge(&evidence.folder).is_err(), "{name}, garbage");
        std::fs::remove_file(evidence.path(name)).unwrap();
        assert!(judge(&evidence.folder).is_err(), "{name}, removed");
    }
}

#[test]
fn a_cut_capture_is_an_error_even_when_the_declaration_agrees() {
    let evidence = Evidence::new("write-lossless");
    let whole = std::fs::read(evidence.path(CAPTURE)).unwrap();
    for part in 1..20 {
        let len = whole.len() * part / 20;
        std::fs::write(evidence.path(CAPTURE), &whole[..len]).unwrap();
        evidence.declare(|_| {});
        assert!(judge(&evidence.folder).is_err(), "{part}/20 of the file");
    }
}

#[test]
fn an_empty_capture_passes_nothing() {
    let evidence = Evidence::new("write-lossless");
    evidence.capture(Vec::clear);
    let result = evidence.judge();
    assert_void(&result, "has sent nothing");
}

#[test]
fn taps_that_do_not_balance_void_the_test() {
    let evidence = Evidence::new("write-lossless");
    evidence.capture(|all| {
        let at = all.iter().rposition(|seen| seen.tap != seen.from).unwrap();
        all.remove(at);
    });
    assert_void(&evidence.judge(), "do not balance");
}

#[test]
fn rules_that_contradict_the_capture_or_did_not_act_void_the_test() {
    let evidence = Evidence::new("gap-in-a-write");
    evidence.declare(|declaration| declaration.rules[0].fired += 1);
    assert_void(&evidence.judge(), "acted");
    let evidence = Evidence::new("gap-in-a-write");
    evidence.declare(|declaration| declaration.rules[0].at_least = 1000);
    assert_void(&evidence.judge(), "stimulus");
}

#[test]
fn a_side_that_sent_nothing_passes_nothing() {
    let evidence = Evidence::new("write-lossless");
    evidence.capture(|all| all.retain(|seen| seen.from == Side::A));
    assert_void(&evidence.judge(), "party b has sent nothing");
}

#[test]
fn without_sanity_nothing_passes() {
    let evidence = Evidence::new("write-lossless");
    evidence.events(|events| {
        events.retain(|event| !matches!(event.what, What::Sanity { .. }));
    });
    assert_void(&evidence.judge(), "no sanity exchange");
    let evidence = Evidence::new("write-lossless");
    evidence.events(|events| {
        for event in events {
            if let What::Sanity { ok, .. } = &mut event.what {
                *ok = false;
            }
        }
    });
    let result = evidence.judge();
    assert_void(&result, "failed");
    assert_eq!(passes(&result), 0);
}

#[test]
fn a_party_that_failed_passes_nothing_and_the_harness_is_an_error() {
    let problem = |side| Problem {
        side,
        message: "it ended".into(),
    };
    let evidence = Evidence::new("write-lossless");
    evidence.declare(|declaration| declaration.problem = Some(problem(Some(Side::B))));
    let result = evidence.judge();
    assert_eq!(result.conduct, Conduct::Failed);
    assert!(result.reason.unwrap().contains("it ended"));
    // The same of a party that is not judged says nothing of the one that is.
    evidence.declare(|declaration| {
        declaration.problem = Some(problem(Some(Side::B)));
        declaration.judged = vec![Side::A];
    });
    assert_void(&evidence.judge(), "it ended");
    evidence.declare(|declaration| declaration.problem = Some(problem(None)));
    let result = evidence.judge();
    assert_eq!((result.conduct, passes(&result)), (Conduct::Error, 0));
}

#[test]
fn a_frame_that_is_no_datagram_is_an_error() {
    let evidence = Evidence::new("write-lossless");
    evidence.capture(|all| all[0].frame.truncate(10));
    assert!(judge(&evidence.folder).is_err());
}

#[test]
fn judging_twice_gives_the_same_bytes() {
    let evidence = Evidence::new("gap-in-a-write");
    let text = || serde_json::to_string(&evidence.judge()).unwrap();
    assert_eq!(text(), text());
    assert!(Path::new(&evidence.folder).exists());
}
