//! The rendering for continuous integration.
//!
//! One suite per test, one test case per finding, named `test/clause`. A failed finding is a failure, a fault of the harness
//! an error; inconclusive and not applicable are skipped, with a message that says which, and so are never shown as passed.
//! A test without findings is one case, one that failed as a whole has a case besides those of its findings, and a last suite holds the clauses on which no test has a finding.

use std::collections::HashSet;

use quick_junit::{NonSuccessKind, Property, Report, TestCase, TestCaseStatus, TestSuite};

use crate::text::{clipped, printable};
use crate::view;
use crate::{Conduct, Finding, IutInfo, RenderError, RunResult, TestResult, Verdict, Violation};

/// Longest text of a message or property, in characters; the JSON has it in full.
const TEXT_LIMIT: usize = 2000;

const UNJUDGED_SUITE: &str = "clauses without a finding";

/// The result as JUnit XML, valid against the strict schema that Jenkins publishes.
///
/// # Errors
///
/// [`RenderError`], should the library refuse.
pub fn render(result: &RunResult) -> Result<String, RenderError> {
    let mut names = Names::default();
    let mut report = Report::new("metaroce");
    for test in &result.tests {
        report.add_test_suite(suite(result, test, &mut names));
    }
    report.add_test_suites(unjudged(result, &mut names));
    let skipped = report.skipped;
    let text = report.to_string().map_err(|error| RenderError {
        format: "JUnit",
        message: error.to_string(),
    })?;
    // The library always writes this count on the root, where the strict schema has no such attribute. Only the fixed name
    // of the report stands before it, so the first match is the root's. Each suite keeps its own.
    Ok(text.replacen(&format!(" skipped=\"{skipped}\""), "", 1))
}

/// Hands out each name once, since readers merge cases of the same name.
#[derive(Default)]
struct Names(HashSet<String>);

impl Names {
    fn unique(&mut self, wanted: &str) -> String {
        let mut name = wanted.to_owned();
        let mut count = 1;
        while !self.0.insert(name.clone()) {
            count += 1;
            name = format!("{wanted} ({count})");
        }
        name
    }
}

fn suite(result: &RunResult, test: &TestResult, names: &mut Names) -> TestSuite {
    let mut suite = TestSuite::new(printable(&test.id));
    run_properties(&mut suite, result);
    property(&mut suite, "title", &test.title);
    property(&mut suite, "scenario", &test.scenario);
    property(&mut suite, "verdict", test.verdict.as_str());
    if let Some(reason) = &test.reason {
        property(&mut suite, "reason", reason);
    }
    if let Some(evidence) = &test.evidence {
        property(&mut suite, "evidence", evidence);
    }
    for adapter in &test.adapters {
        property(
            &mut suite,
            &format!("adapter {}", adapter.side.as_str()),
            &adapter.reason,
        );
    }
    for finding in &test.findings {
        let name = format!("{}/{}", test.id, finding.clause);
        suite.add_test_case(case(names, &name, &test.id, finding_status(test, finding)));
    }
    // A failure of the test as a whole is no finding's.
    if test.findings.is_empty() || test.conduct == Conduct::Failed {
        let reason = clipped(test.reason.as_deref().unwrap_or("no finding"), TEXT_LIMIT);
        suite.add_test_case(case(
            names,
            &test.id,
            &test.id,
            status(test.verdict, &reason, None),
        ));
    }
    suite
}

/// The clauses that would not appear otherwise. Their verdict is inconclusive or not applicable: nothing else is drawn from
/// no finding.
fn unjudged(result: &RunResult, names: &mut Names) -> Option<TestSuite> {
    let found: HashSet<&str> = result
        .tests
        .iter()
        .flat_map(|test| test.findings.iter().map(|finding| finding.clause.as_str()))
        .collect();
    let mut missing = result
        .clauses
        .iter()
        .filter(|clause| !found.contains(clause.id.as_str()))
        .peekable();
    missing.peek()?;
    let mut suite = TestSuite::new(UNJUDGED_SUITE);
    run_properties(&mut suite, result);
    for clause in missing {
        let reason = clipped(clause.reason.as_deref().unwrap_or("no finding"), TEXT_LIMIT);
        let status = status(clause.verdict, &reason, None);
        suite.add_test_case(case(names, &clause.id, UNJUDGED_SUITE, status));
    }
    Some(suite)
}

fn case(names: &mut Names, name: &str, class: &str, status: TestCaseStatus) -> TestCase {
    let mut case = TestCase::new(names.unique(&printable(name)), status);
    case.set_classname(printable(class));
    case
}

fn finding_status(test: &TestResult, finding: &Finding) -> TestCaseStatus {
    let reason = finding.reason.as_deref();
    let evidence = test.evidence.as_deref().unwrap_or("no capture");
    let mut details: Vec<String> = finding.violations.iter().map(violation).collect();
    if finding.more_violations > 0 {
        details.push(format!("and {} more violations", finding.more_violations));
    }
    let message = match (reason, details.first()) {
        (Some(reason), _) => clipped(reason, TEXT_LIMIT),
        (None, Some(first)) => first.clone(),
        (None, None) => "no details were recorded".to_owned(),
    };
    details.push(format!("evidence: {}", clipped(evidence, TEXT_LIMIT)));
    status(finding.verdict, &message, Some(details.join("\n")))
}

fn violation(violation: &Violation) -> String {
    let expected = clipped(&violation.expected, TEXT_LIMIT);
    let seen = clipped(&violation.seen, TEXT_LIMIT);
    format!(
        "{}: expected {expected}; seen {seen}",
        view::frames(violation)
    )
}

/// The status for a verdict; `message` and `details` are shown as they are.
fn status(verdict: Verdict, message: &str, details: Option<String>) -> TestCaseStatus {
    let mut status = match verdict {
        Verdict::Pass => return TestCaseStatus::success(),
        Verdict::Fail => TestCaseStatus::non_success(NonSuccessKind::Failure),
        Verdict::Error => TestCaseStatus::non_success(NonSuccessKind::Error),
        Verdict::Inconclusive | Verdict::NotApplicable => TestCaseStatus::skipped(),
    };
    status.set_type(verdict.as_str());
    status.set_message(format!("{verdict}: {message}"));
    if let Some(details) = details {
        status.set_description(details);
    }
    status
}

fn run_properties(suite: &mut TestSuite, result: &RunResult) {
    let versions = &result.versions;
    property(suite, "suite", &versions.suite);
    property(suite, "specification", &versions.specification);
    property(
        suite,
        "specification digest",
        &versions.specification_digest,
    );
    property(suite, "profile", &versions.profile);
    property(suite, "implementation", &endpoint(&result.iut));
    property(suite, "peer", &endpoint(&result.peer));
    property(suite, "link", &result.link);
    property(suite, "seed", &result.seed.to_string());
    property(suite, "pics", &result.selection.pics);
    property(
        suite,
        "unmonitored clauses",
        &result.unmonitored.len().to_string(),
    );
}

fn endpoint(info: &IutInfo) -> String {
    format!("{} {}", info.name, info.version)
}

fn property(suite: &mut TestSuite, name: &str, value: &str) {
    suite.add_property(Property::new(name, clipped(value, TEXT_LIMIT)));
}
