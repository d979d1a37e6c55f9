//! How verdicts combine, and what a run draws from its findings.

use crate::sample::{assemble, clause, excluded, fail, header, pass, sample, test, unsound};
use metaroce_reports::{
    AssembleError, ClauseResult, Conduct, Finding, RunResult, TestResult, Unmonitored, Verdict,
    exit, exit_code,
};

/// The result on clause `A` of these tests.
fn on_a(tests: Vec<TestResult>) -> ClauseResult {
    let result = assemble(&[clause("A"), clause("B")], tests);
    result.clauses[0].clone()
}

#[test]
fn the_stronger_verdict_wins() {
    use Verdict::{Error, Fail, Inconclusive, NotApplicable, Pass};
    let order = [NotApplicable, Pass, Inconclusive, Fail, Error];
    // Written out, so that a changed order of the enum shows. Row and column in the order above.
    let table = [
        [NotApplicable, Pass, Inconclusive, Fail, Error],
        [Pass, Pass, Inconclusive, Fail, Error],
        [Inconclusive, Inconclusive, Inconclusive, Fail, Error],
        [Fail, Fail, Fail, Fail, Error],
        [Error, Error, Error, Error, Error],
    ];
    assert_eq!(Verdict::ALL, order);
    for (row, left) in table.iter().zip(order) {
        for (expected, right) in row.iter().zip(order) {
            assert_eq!(left.combine(right), *expected, "{left} with {right}");
        }
    }
}

#[test]
fn words_of_verdicts_in_json_are_fixed() {
    let words = serde_json::to_string(&Verdict::ALL).unwrap();
    assert_eq!(
        words,
        r#"["not_applicable","pass","inconclusive","fail","error"]"#
    );
}

#[test]
fn exercised_and_not_violated_is_a_pass() {
    let clause = on_a(vec![
        test("t1", vec![pass("A", 3)]),
        test("t2", vec![pass("A", 4)]),
    ]);
    assert_eq!((clause.verdict, clause.exercised), (Verdict::Pass, 7));
    assert_eq!(clause.tests, ["t1", "t2"]);
    assert_eq!(clause.reason, None);
}

#[test]
fn not_exercised_anywhere_is_inconclusive() {
    let never = on_a(vec![test("t1", vec![pass("A", 0), pass("B", 1)])]);
    let unseen = on_a(vec![test("t1", vec![pass("B", 1)])]);
    for clause in [never, unseen] {
        assert_eq!(
            (clause.verdict, clause.exercised),
            (Verdict::Inconclusive, 0)
        );
        assert!(clause.tests.is_empty());
        let reason = clause.reason.unwrap();
        assert_eq!(reason, "not exercised by any selected test");
    }
}

#[test]
fn not_exercised_in_one_test_leaves_the_pass_of_another() {
    let clause = on_a(vec![
        test("t1", vec![pass("A", 0)]),
        test("t2", vec![pass("A", 1)]),
    ]);
    assert_eq!(clause.verdict, Verdict::Pass);
    assert_eq!(clause.tests, ["t2"]);
}

#[test]
fn a_failure_outweighs_passes_and_what_is_inconclusive() {
    let clause = on_a(vec![
        test("t1", vec![pass("A", 1)]),
        test("t2", vec![fail("A", 1)]),
        test("t3", vec![Finding::inconclusive("A", 1, "too coarse")]),
    ]);
    assert_eq!(clause.verdict, Verdict::Fail);
    assert_eq!(clause.reason.unwrap(), "t2: 3 violations");
}

#[test]
fn an_exercised_inconclusive_finding_outweighs_a_pass() {
    let clause = on_a(vec![
        test("t1", vec![pass("A", 1)]),
        test("t2", vec![Finding::inconclusive("A", 1, "too coarse")]),
    ]);
    assert_eq!(clause.verdict, Verdict::Inconclusive);
    assert_eq!(clause.reason.unwrap(), "t2: too coarse");
}

#[test]
fn violations_in_an_inconclusive_test_are_kept_and_not_charged() {
    let result = assemble(
        &[clause("A")],
        vec![unsound(
            "t1",
            Conduct::Inconclusive,
            "taps do not balance",
            vec![fail("A", 2)],
        )],
    );
    let clause = &result.clauses[0];
    assert_eq!(
        (clause.verdict, clause.exercised),
        (Verdict::Inconclusive, 0)
    );
    let reason = clause.reason.clone().unwrap();
    assert_eq!(
        reason,
        "t1: the test is inconclusive, 3 violations are not charged: taps do not balance"
    );
    assert_eq!(result.tests[0].findings[0].violations.len(), 1);
    assert_eq!(exit_code(&result), exit::INCONCLUSIVE);
}

#[test]
fn passes_of_an_inconclusive_test_do_not_count() {
    let clause = on_a(vec![
        test("t1", vec![pass("A", 1)]),
        unsound("t2", Conduct::Inconclusive, "sanity", vec![pass("A", 1)]),
    ]);
    assert_eq!(clause.verdict, Verdict::Inconclusive);
}

#[test]
fn what_an_inconclusive_test_did_not_meet_it_does_not_touch() {
    let result = assemble(
        &[clause("A")],
        vec![
            test("t1", vec![pass("A", 1)]),
            unsound("t2", Conduct::Inconclusive, "sanity", vec![pass("A", 0)]),
        ],
    );
    assert_eq!(result.clauses[0].verdict, Verdict::Pass);
    // The run is not clean for all that: a test could not be carried out.
    assert_eq!(exit_code(&result), exit::INCONCLUSIVE);
}

#[test]
fn a_test_that_failed_as_a_whole_fails_the_run_and_passes_nothing() {
    let failed = |findings| unsound("t2", Conduct::Failed, "ended during poll", findings);
    let result = assemble(
        &[clause("A"), clause("B"), clause("C")],
        vec![
            test("t1", vec![pass("A", 1), pass("B", 1), pass("C", 1)]),
            failed(vec![pass("A", 2), fail("B", 1), pass("C", 0)]),
        ],
    );
    let verdicts: Vec<Verdict> = result.clauses.iter().map(|c| c.verdict).collect();
    assert_eq!(
        verdicts,
        [Verdict::Inconclusive, Verdict::Fail, Verdict::Pass]
    );
    assert_eq!(result.tests[1].verdict, Verdict::Fail);
    assert_eq!(exit_code(&result), exit::FAIL);
    assert_eq!(result.reassemble().unwrap(), result);
    // Without any failed clause the test itself is the failure, and every rendering says so.
    let bare = assemble(&[clause("A")], vec![failed(vec![pass("A", 1)])]);
    assert_eq!(exit_code(&bare), exit::FAIL);
    for text in [
        metaroce_reports::table::render(&bare, metaroce_reports::table::Colour::Never),
        metaroce_reports::markdown::render(&bare),
        metaroce_reports::junit::render(&bare).unwrap(),
    ] {
        let (head, _) = text.split_once("inconclusive:").unwrap_or((&text, ""));
        assert!(head.to_lowercase().contains("fail"), "{text}");
        assert!(text.contains("ended during poll"), "{text}");
    }
    let junit = metaroce_reports::junit::render(&bare).unwrap();
    assert!(junit.contains("failures=\"1\""), "{junit}");
}

#[test]
fn an_error_in_a_test_reaches_its_clauses_even_where_not_exercised() {
    let clause = on_a(vec![
        test("t1", vec![fail("A", 1)]),
        unsound("t2", Conduct::Error, "no socket", vec![pass("A", 0)]),
    ]);
    assert_eq!(clause.verdict, Verdict::Error);
    assert_eq!(
        clause.reason.unwrap(),
        "t2: the test ended with an error: no socket"
    );
}

#[test]
fn only_the_pics_makes_a_clause_not_applicable() {
    let claimed = Finding {
        verdict: Verdict::NotApplicable,
        ..pass("A", 1)
    };
    let by_a_test = on_a(vec![test("t1", vec![claimed])]);
    assert_eq!(by_a_test.verdict, Verdict::Inconclusive);
    let not_run = unsound("t1", Conduct::NotApplicable, "pics", Vec::new());
    assert_eq!(on_a(vec![not_run]).verdict, Verdict::Inconclusive);
    let by_pics = assemble(&[excluded("A")], vec![test("t1", vec![pass("A", 0)])]);
    assert_eq!(by_pics.clauses[0].verdict, Verdict::NotApplicable);
}

#[test]
fn an_excluded_clause_is_judged_once_it_is_exercised() {
    let failed = assemble(&[excluded("A")], vec![test("t1", vec![fail("A", 1)])]);
    assert_eq!(failed.clauses[0].verdict, Verdict::Fail);
    let passed = assemble(&[excluded("A")], vec![test("t1", vec![pass("A", 1)])]);
    assert_eq!(passed.clauses[0].verdict, Verdict::Pass);
    assert!(passed.clauses[0].reason.is_some());
}

#[test]
fn a_verdict_its_evidence_does_not_bear_is_corrected() {
    let hidden = Finding {
        verdict: Verdict::Pass,
        ..fail("A", 1)
    };
    assert_eq!(on_a(vec![test("t1", vec![hidden])]).verdict, Verdict::Fail);
    let empty = Finding {
        verdict: Verdict::Pass,
        reason: None,
        ..pass("A", 0)
    };
    assert_eq!(
        on_a(vec![test("t1", vec![empty])]).verdict,
        Verdict::Inconclusive
    );
}

#[test]
fn a_test_has_the_strongest_verdict_of_what_it_met() {
    let result = sample();
    let verdicts: Vec<Verdict> = result.tests.iter().map(|test| test.verdict).collect();
    let expected = [
        Verdict::Pass,
        Verdict::Fail,
        Verdict::Inconclusive,
        Verdict::NotApplicable,
    ];
    assert_eq!(verdicts, expected);
    let idle = assemble(&[clause("A")], vec![test("t1", vec![pass("A", 0)])]);
    assert_eq!(idle.tests[0].verdict, Verdict::Inconclusive);
}

#[test]
fn counts_of_the_sample() {
    let summary = sample().summary;
    let clauses = Verdict::ALL.map(|verdict| summary.clauses.count(verdict));
    let tests = Verdict::ALL.map(|verdict| summary.tests.count(verdict));
    assert_eq!(clauses, [1, 2, 2, 1, 0]);
    assert_eq!(tests, [1, 1, 1, 1, 0]);
}

#[test]
fn exit_codes() {
    let passing = || test("ok", vec![pass("A", 1)]);
    let code = |tests| exit_code(&assemble(&[clause("A")], tests));
    assert_eq!(code(vec![passing()]), exit::PASS);
    let failing = || test("t1", vec![fail("A", 1)]);
    assert_eq!(code(vec![passing(), failing()]), exit::FAIL);
    let idle = test("t1", vec![pass("A", 0)]);
    assert_eq!(code(vec![idle]), exit::INCONCLUSIVE);
    let broken = unsound("t2", Conduct::Error, "no socket", Vec::new());
    assert_eq!(code(vec![passing(), failing(), broken]), exit::HARNESS);
    let skipped = unsound("t1", Conduct::NotApplicable, "pics", Vec::new());
    assert_eq!(code(vec![passing(), skipped.clone()]), exit::PASS);
    assert_eq!(
        exit_code(&assemble(&[excluded("A")], vec![skipped])),
        exit::HARNESS
    );
    assert_eq!(
        [
            exit::PASS,
            exit::FAIL,
            exit::USAGE,
            exit::INCONCLUSIVE,
            exit::HARNESS
        ],
        [0, 1, 2, 3, 4]
    );
}

#[test]
fn nothing_selected_is_a_harness_error() {
    let none = assemble(&[clause("A")], Vec::new());
    assert_eq!(exit_code(&none), exit::HARNESS);
    let no_clause = assemble(&[], vec![test("t1", Vec::new())]);
    assert_eq!(exit_code(&no_clause), exit::HARNESS);
}

#[test]
fn contradicting_lists_are_refused() {
    let refused = |clauses: &[_], tests: Vec<TestResult>, selected: &[&str], without: &[&str]| {
        let mut header = header(&tests);
        header.selection.tests = selected.iter().map(|&id| id.to_owned()).collect();
        let unmonitored = without.iter().map(|&id| Unmonitored {
            clause: id.to_owned(),
            reason: "no monitor".to_owned(),
        });
        RunResult::assemble(header, clauses, tests, unmonitored.collect()).unwrap_err()
    };
    let a = [clause("A")];
    let t1 = || test("t1", vec![pass("A", 1)]);
    assert_eq!(
        refused(&[clause("A"), clause("A")], vec![t1()], &["t1"], &[]),
        AssembleError::ClauseTwice("A".into())
    );
    assert_eq!(
        refused(&a, vec![t1()], &["t1"], &["A"]),
        AssembleError::ClauseTwice("A".into())
    );
    assert_eq!(
        refused(&a, vec![t1(), t1()], &["t1"], &[]),
        AssembleError::TestTwice("t1".into())
    );
    assert_eq!(
        refused(&a, vec![t1()], &["t1", "t2"], &[]),
        AssembleError::TestMissing("t2".into())
    );
    assert_eq!(
        refused(&a, vec![t1()], &[], &[]),
        AssembleError::TestNotSelected("t1".into())
    );
    let twice = test("t1", vec![pass("A", 1), pass("A", 1)]);
    assert!(matches!(
        refused(&a, vec![twice], &["t1"], &[]),
        AssembleError::FindingTwice { .. }
    ));
    assert!(matches!(
        refused(&[clause("B")], vec![t1()], &["t1"], &[]),
        AssembleError::ClauseUnknown { .. }
    ));
    let silent = unsound("t1", Conduct::Error, "", Vec::new());
    assert_eq!(
        refused(&a, vec![silent], &["t1"], &[]),
        AssembleError::NoReason("t1".into())
    );
    let phantom = unsound("t1", Conduct::NotApplicable, "pics", vec![pass("A", 1)]);
    assert_eq!(
        refused(&a, vec![phantom], &["t1"], &[]),
        AssembleError::FindingsWithoutRun("t1".into())
    );
}

#[test]
fn drawing_the_verdicts_again_changes_nothing() {
    for result in [sample(), crate::sample::hostile()] {
        assert_eq!(result.reassemble().unwrap(), result);
    }
}
