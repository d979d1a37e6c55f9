//! From findings to verdicts: the one place where clause results are drawn.

use std::collections::{HashMap, HashSet};

use thiserror::Error;

use crate::{
    ClauseResult, Conduct, Counts, Finding, IutInfo, RunResult, SCHEMA_NAME, Selection, Summary,
    TestResult, Unmonitored, Verdict, Versions,
};

/// How many reasons a combined reason quotes before it only counts the rest.
const QUOTED_REASONS: usize = 3;

const NOT_EXERCISED: &str = "not exercised";

/// What is known of a run before its tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunHeader {
    /// What is used to judge.
    pub versions: Versions,
    /// The number all random choices derive from.
    pub seed: u64,
    /// What carries the packets.
    pub link: String,
    /// The implementation under test.
    pub iut: IutInfo,
    /// The endpoint it speaks with.
    pub peer: IutInfo,
    /// What was asked for.
    pub selection: Selection,
}

/// A selected clause: one that has a monitor and lies within the selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClauseInfo {
    /// Clause id.
    pub id: String,
    /// BCP 14 key word.
    pub level: String,
    /// Whom it binds.
    pub role: String,
    /// The item of the PICS that excludes it, if one does. Nothing else makes a clause not applicable.
    pub excluded_by: Option<String>,
}

/// Why no result can be drawn: a fault of the harness, or of whoever edited a result.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AssembleError {
    /// A clause is listed more than once, or both as selected and as unmonitored.
    #[error("clause {0} is listed twice")]
    ClauseTwice(String),
    /// Two tests have the same id, or the selection names one twice.
    #[error("test {0} is listed twice")]
    TestTwice(String),
    /// A selected test left no result.
    #[error("test {0} was selected and has no result")]
    TestMissing(String),
    /// A test has a result and was not selected.
    #[error("test {0} has a result and was not selected")]
    TestNotSelected(String),
    /// A test has more than one finding on a clause.
    #[error("test {test} has two findings on clause {clause}")]
    FindingTwice {
        /// The test.
        test: String,
        /// The clause.
        clause: String,
    },
    /// A finding is on a clause that is not among those selected.
    #[error("test {test} has a finding on clause {clause}, which is not selected")]
    ClauseUnknown {
        /// The test.
        test: String,
        /// The clause.
        clause: String,
    },
    /// A test was not carried out soundly and does not say why.
    #[error("test {0} was not sound and gives no reason")]
    NoReason(String),
    /// A test that was not run has findings.
    #[error("test {0} was not run and has findings")]
    FindingsWithoutRun(String),
}

impl RunResult {
    /// Draws the verdicts on `clauses` from the findings of `tests`.
    ///
    /// Findings are settled first: a pass that was not exercised becomes inconclusive, a pass with violations a failure; all
    /// findings of an inconclusive test become inconclusive and those of a test with an error become errors, their violations
    /// staying readable; a test that the implementation failed as a whole keeps its failures and lets nothing pass. Then the strongest finding decides; one that met nothing is left out, and a clause that no test met
    /// is inconclusive. `verdict` and, for sound tests, `reason` of the tests are set here, whatever they held.
    ///
    /// # Errors
    ///
    /// [`AssembleError`], when lists contradict each other, so that no finding can be lost without notice.
    pub fn assemble(
        header: RunHeader,
        clauses: &[ClauseInfo],
        tests: Vec<TestResult>,
        unmonitored: Vec<Unmonitored>,
    ) -> Result<Self, AssembleError> {
        check_lists(&header.selection, clauses, &tests, &unmonitored)?;
        let tests: Vec<TestResult> = tests.into_iter().map(TestResult::settled).collect();
        let mut findings: HashMap<&str, Vec<(&TestResult, &Finding)>> = HashMap::new();
        for test in &tests {
            for finding in &test.findings {
                let of_clause = findings.entry(finding.clause.as_str()).or_default();
                of_clause.push((test, finding));
            }
        }
        let clauses = clauses
            .iter()
            .map(|info| {
                let found = findings
                    .get(info.id.as_str())
                    .map_or(&[][..], Vec::as_slice);
                draw(info, found)
            })
            .collect();
        let mut result = Self {
            schema: SCHEMA_NAME.to_owned(),
            versions: header.versions,
            seed: header.seed,
            link: header.link,
            iut: header.iut,
            peer: header.peer,
            selection: header.selection,
            clauses,
            tests,
            unmonitored,
            summary: Summary::default(),
        };
        result.summary = result.summarise();
        Ok(result)
    }

    /// The verdict on the run: the strongest over clauses and tests.
    ///
    /// Tests count besides clauses, because a test that could not be carried out may have left its clauses to others. A run
    /// without tests, without clauses or with every clause excluded judged nothing, which is an error.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let strongest = |verdicts: &mut dyn Iterator<Item = Verdict>| {
            verdicts.fold(Verdict::NotApplicable, Verdict::combine)
        };
        let clauses = strongest(&mut self.clauses.iter().map(|clause| clause.verdict));
        let tests = strongest(&mut self.tests.iter().map(|test| test.verdict));
        if clauses == Verdict::NotApplicable || tests == Verdict::NotApplicable {
            return Verdict::Error;
        }
        clauses.combine(tests)
    }

    /// Counts the verdicts over clauses and tests.
    #[must_use]
    pub fn summarise(&self) -> Summary {
        Summary {
            clauses: Counts::of(self.clauses.iter().map(|clause| clause.verdict)),
            tests: Counts::of(self.tests.iter().map(|test| test.verdict)),
        }
    }

    /// Draws the verdicts anew from what the result itself records of its tests.
    ///
    /// Equal to `self` for every result that [`RunResult::assemble`] made and nobody changed since.
    ///
    /// # Errors
    ///
    /// As [`RunResult::assemble`].
    pub fn reassemble(&self) -> Result<Self, AssembleError> {
        let header = RunHeader {
            versions: self.versions.clone(),
            seed: self.seed,
            link: self.link.clone(),
            iut: self.iut.clone(),
            peer: self.peer.clone(),
            selection: self.selection.clone(),
        };
        let clauses: Vec<ClauseInfo> = self
            .clauses
            .iter()
            .map(|clause| ClauseInfo {
                id: clause.id.clone(),
                level: clause.level.clone(),
                role: clause.role.clone(),
                excluded_by: clause.excluded_by.clone(),
            })
            .collect();
        Self::assemble(
            header,
            &clauses,
            self.tests.clone(),
            self.unmonitored.clone(),
        )
    }
}

impl TestResult {
    /// Settles the findings and sets verdict and reason from them.
    fn settled(mut self) -> Self {
        let (conduct, why) = (self.conduct, self.reason.take());
        self.findings = self
            .findings
            .into_iter()
            .map(|finding| finding.settled(conduct, why.as_deref()))
            .collect();
        (self.verdict, self.reason) = match conduct {
            Conduct::Failed => (Verdict::Fail, why),
            Conduct::Inconclusive => (Verdict::Inconclusive, why),
            Conduct::Error => (Verdict::Error, why),
            Conduct::NotApplicable => (Verdict::NotApplicable, why),
            Conduct::Sound => over_findings(&self.findings),
        };
        self
    }
}

impl Finding {
    /// The finding with the verdict that its evidence and the conduct of its test bear. Settling twice changes nothing.
    pub(crate) fn settled(mut self, conduct: Conduct, test_reason: Option<&str>) -> Self {
        self.reason = self.reason.filter(|reason| !reason.is_empty());
        match self.verdict {
            Verdict::Pass if self.violation_count() > 0 => self.verdict = Verdict::Fail,
            Verdict::Pass if self.exercised == 0 => {
                self.verdict = Verdict::Inconclusive;
                self.reason = Some(NOT_EXERCISED.to_owned());
            }
            Verdict::NotApplicable => {
                self.verdict = Verdict::Inconclusive;
                self.reason =
                    Some("called not applicable by a test, which only the pics may".to_owned());
            }
            Verdict::Inconclusive if self.reason.is_none() => {
                self.reason = Some("no reason was given".to_owned());
            }
            _ => {}
        }
        let uncharged = match self.violation_count() {
            0 => String::new(),
            1 => ", 1 violation is not charged".to_owned(),
            count => format!(", {count} violations are not charged"),
        };
        let because = |what: &str| {
            let why = test_reason.unwrap_or("no reason was given");
            Some(format!("{what}{uncharged}: {why}"))
        };
        match conduct {
            // A fault of the harness may also be why a clause was not met, so even empty findings become errors.
            Conduct::Error if self.verdict != Verdict::Error => {
                self.verdict = Verdict::Error;
                self.reason = because("the test ended with an error");
            }
            Conduct::Failed if self.verdict == Verdict::Pass => {
                self.verdict = Verdict::Inconclusive;
                self.reason = because("the implementation failed the test");
            }
            Conduct::Inconclusive if matches!(self.verdict, Verdict::Pass | Verdict::Fail) => {
                self.verdict = Verdict::Inconclusive;
                self.reason = because("the test is inconclusive");
            }
            _ => {}
        }
        self
    }

    /// Whether the finding has a say in the verdict of its clause.
    fn counts(&self) -> bool {
        self.is_exercised() || self.verdict == Verdict::Error
    }
}

fn check_lists(
    selection: &Selection,
    clauses: &[ClauseInfo],
    tests: &[TestResult],
    unmonitored: &[Unmonitored],
) -> Result<(), AssembleError> {
    let mut listed = HashSet::new();
    let mut selected_clauses = HashSet::new();
    for clause in clauses {
        selected_clauses.insert(clause.id.as_str());
    }
    let ids = clauses.iter().map(|clause| &clause.id);
    for id in ids.chain(unmonitored.iter().map(|entry| &entry.clause)) {
        if !listed.insert(id.as_str()) {
            return Err(AssembleError::ClauseTwice(id.clone()));
        }
    }
    let mut selected = HashSet::new();
    for id in &selection.tests {
        if !selected.insert(id.as_str()) {
            return Err(AssembleError::TestTwice(id.clone()));
        }
    }
    let mut seen = HashSet::new();
    for test in tests {
        if !seen.insert(test.id.as_str()) {
            return Err(AssembleError::TestTwice(test.id.clone()));
        }
        if !selected.contains(test.id.as_str()) {
            return Err(AssembleError::TestNotSelected(test.id.clone()));
        }
        check_test(test, &selected_clauses)?;
    }
    match selection
        .tests
        .iter()
        .find(|id| !seen.contains(id.as_str()))
    {
        Some(id) => Err(AssembleError::TestMissing(id.clone())),
        None => Ok(()),
    }
}

fn check_test(test: &TestResult, selected_clauses: &HashSet<&str>) -> Result<(), AssembleError> {
    if test.conduct != Conduct::Sound && test.reason.as_deref().is_none_or(str::is_empty) {
        return Err(AssembleError::NoReason(test.id.clone()));
    }
    if test.conduct == Conduct::NotApplicable && !test.findings.is_empty() {
        return Err(AssembleError::FindingsWithoutRun(test.id.clone()));
    }
    let mut found = HashSet::new();
    for finding in &test.findings {
        let (test, clause) = (test.id.clone(), finding.clause.clone());
        if !found.insert(finding.clause.as_str()) {
            return Err(AssembleError::FindingTwice { test, clause });
        }
        if !selected_clauses.contains(finding.clause.as_str()) {
            return Err(AssembleError::ClauseUnknown { test, clause });
        }
    }
    Ok(())
}

/// Verdict and reason of a sound test with these settled findings.
fn over_findings(findings: &[Finding]) -> (Verdict, Option<String>) {
    let counted = || findings.iter().filter(|finding| finding.counts());
    let verdict = counted()
        .map(|finding| finding.verdict)
        .reduce(Verdict::combine);
    let Some(verdict) = verdict else {
        return (
            Verdict::Inconclusive,
            Some("exercised no selected clause".to_owned()),
        );
    };
    let deciding = counted().filter(|finding| finding.verdict == verdict);
    let reason = (verdict != Verdict::Pass)
        .then(|| quote(deciding.map(|finding| (finding.clause.as_str(), explain(finding)))));
    (verdict, reason)
}

/// The result of one clause from all settled findings on it.
fn draw(info: &ClauseInfo, found: &[(&TestResult, &Finding)]) -> ClauseResult {
    let counted: Vec<_> = found
        .iter()
        .filter(|(_, finding)| finding.counts())
        .collect();
    let verdict = counted
        .iter()
        .map(|(_, finding)| finding.verdict)
        .reduce(Verdict::combine);
    let (verdict, reason) = match (verdict, &info.excluded_by) {
        (None, Some(item)) => (Verdict::NotApplicable, Some(format!("excluded by {item}"))),
        (None, None) => (Verdict::Inconclusive, Some(unmet(found))),
        (Some(Verdict::Pass), None) => (Verdict::Pass, None),
        (Some(Verdict::Pass), Some(item)) => (
            Verdict::Pass,
            Some(format!("excluded by {item}, and exercised all the same")),
        ),
        (Some(verdict), _) => {
            let deciding = counted
                .iter()
                .filter(|(_, finding)| finding.verdict == verdict);
            let reasons = deciding.map(|(test, finding)| (test.id.as_str(), explain(finding)));
            (verdict, Some(quote(reasons)))
        }
    };
    let sound = counted
        .iter()
        .filter(|(test, _)| matches!(test.conduct, Conduct::Sound | Conduct::Failed));
    ClauseResult {
        id: info.id.clone(),
        level: info.level.clone(),
        role: info.role.clone(),
        verdict,
        exercised: sound.fold(0, |sum, (_, finding)| finding.exercised.saturating_add(sum)),
        tests: counted.iter().map(|(test, _)| test.id.clone()).collect(),
        reason,
        excluded_by: info.excluded_by.clone(),
    }
}

/// The reason of a clause that no test met, with what the tests say about it beyond that.
fn unmet(found: &[(&TestResult, &Finding)]) -> String {
    let said: Vec<_> = found
        .iter()
        .filter_map(|(test, finding)| Some((test.id.as_str(), finding.reason.clone()?)))
        .filter(|(_, reason)| reason != NOT_EXERCISED)
        .collect();
    let base = "not exercised by any selected test";
    if said.is_empty() {
        base.to_owned()
    } else {
        format!("{base} ({})", quote(said))
    }
}

fn explain(finding: &Finding) -> String {
    match (&finding.reason, finding.violation_count()) {
        (Some(reason), _) => reason.clone(),
        (None, 1) => "1 violation".to_owned(),
        (None, count) => format!("{count} violations"),
    }
}

/// `where: reason; where: reason; …`, cut short after a few.
fn quote<'a>(reasons: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut parts: Vec<String> = reasons
        .into_iter()
        .map(|(place, reason)| format!("{place}: {reason}"))
        .collect();
    if parts.len() > QUOTED_REASONS {
        let rest = parts.split_off(QUOTED_REASONS).len();
        parts.push(format!("and {rest} more"));
    }
    parts.join("; ")
}
