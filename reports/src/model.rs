//! The result model: plain data, the same in memory and in `result.json`.

use serde::{Deserialize, Serialize};

use crate::Verdict;

/// Name and version of the model, the value of [`RunResult::schema`].
pub const SCHEMA_NAME: &str = "metaroce-result/1";

/// Everything a run found out. Made by [`RunResult::assemble`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunResult {
    /// Always [`SCHEMA_NAME`].
    pub schema: String,
    /// What was used to judge.
    pub versions: Versions,
    /// The number all random choices of the run derive from.
    pub seed: u64,
    /// What carried the packets: `sim`, `relay`.
    pub link: String,
    /// The implementation under test.
    pub iut: IutInfo,
    /// The endpoint it spoke with.
    pub peer: IutInfo,
    /// What was asked for.
    pub selection: Selection,
    /// One entry per selected clause, in the order of the specification.
    pub clauses: Vec<ClauseResult>,
    /// One entry per selected test, in the order they ran.
    pub tests: Vec<TestResult>,
    /// Clauses of the specification that no monitor judges.
    pub unmonitored: Vec<Unmonitored>,
    /// Counts over clauses and tests.
    pub summary: Summary,
}

/// Versions of everything a verdict depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Versions {
    /// Version of the suite.
    pub suite: String,
    /// Version of the specification.
    pub specification: String,
    /// Digest of the specification's clauses, with the name of the hash in front: `sha256:…`.
    pub specification_digest: String,
    /// Profile of the protocol, for example `metaroce-open 0.1`.
    pub profile: String,
}

/// An endpoint that took part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IutInfo {
    /// The name it gives itself.
    pub name: String,
    /// The version it gives itself.
    pub version: String,
    /// The command its adapter was started with; absent when it ran in process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// The filter on tests or clauses as it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Name of the PICS.
    pub pics: String,
    /// Ids of the selected tests; each has a [`TestResult`].
    pub tests: Vec<String>,
}

/// The verdict on one clause over all tests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClauseResult {
    /// Clause id, for example `REL-007`.
    pub id: String,
    /// BCP 14 key word: `MUST`, `SHOULD NOT`, …
    pub level: String,
    /// Whom the clause binds: `sender`, `receiver`, …
    pub role: String,
    /// The strongest verdict of the findings that count.
    pub verdict: Verdict,
    /// How often the clause was exercised in tests that were carried out soundly, a count.
    pub exercised: u64,
    /// Ids of the tests whose findings count towards the verdict.
    pub tests: Vec<String>,
    /// Why the verdict is not pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The item of the PICS that excludes the clause. The verdict is `not_applicable` then, unless the clause was exercised
    /// all the same: behaviour that shows is judged, whatever was declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excluded_by: Option<String>,
}

/// What one test found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestResult {
    /// Test id, a name and never a position.
    pub id: String,
    /// One line for people.
    pub title: String,
    /// The scenario it ran.
    pub scenario: String,
    /// The capture, a path relative to the evidence folder; absent when nothing was captured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// SHA-256 of the declaration beside it, which names the digests of the other files, hex; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declaration_sha256: Option<String>,
    /// How the test itself went, apart from what it found.
    pub conduct: Conduct,
    /// Verdict over the findings; set by [`RunResult::assemble`].
    pub verdict: Verdict,
    /// Why the test is not pass. To be given when `conduct` is not [`Conduct::Sound`]; otherwise set by
    /// [`RunResult::assemble`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How the adapters ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adapters: Vec<AdapterExit>,
    /// One entry per clause that was looked at.
    pub findings: Vec<Finding>,
}

/// How a test was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conduct {
    /// As planned: what it found counts.
    Sound,
    /// The implementation under test ended, hung, broke the adapter protocol or refused what it claims: the test fails, with
    /// or without a clause that failed, and nothing it saw is a pass.
    Failed,
    /// A stimulus was not delivered, taps do not balance, a sanity exchange failed: nothing it saw is a pass or a failure.
    Inconclusive,
    /// The harness failed; never charged to the implementation.
    Error,
    /// Not run, because the PICS excludes what it needs.
    NotApplicable,
}

/// How the adapter of one side ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdapterExit {
    /// Whose adapter.
    pub side: Side,
    /// What ended it, for example `closed`, `exit status 3`, `killed after 5 s`.
    pub reason: String,
}

/// One of the two endpoints of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The implementation under test.
    Iut,
    /// The endpoint it spoke with.
    Peer,
}

impl Side {
    /// The word for people, the same as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Iut => "iut",
            Self::Peer => "peer",
        }
    }
}

/// What one test found out about one clause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// Clause id.
    pub clause: String,
    /// The verdict. [`RunResult::assemble`] corrects one that its evidence does not bear.
    pub verdict: Verdict,
    /// How often the clause was exercised, a count.
    pub exercised: u64,
    /// Why the verdict is not pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The first violations, in the order of the capture.
    pub violations: Vec<Violation>,
    /// How many violations there were beyond those listed, a count.
    pub more_violations: u64,
}

impl Finding {
    /// The finding of a monitor that read everything it needed.
    ///
    /// Fail when there is a violation, pass when there is none and the clause was exercised, inconclusive otherwise.
    /// `exercised` and `more_violations` are counts.
    #[must_use]
    pub fn judged(
        clause: impl Into<String>,
        exercised: u64,
        violations: Vec<Violation>,
        more_violations: u64,
    ) -> Self {
        let finding = Self {
            clause: clause.into(),
            verdict: Verdict::Pass,
            exercised,
            reason: None,
            violations,
            more_violations,
        };
        finding.settled(Conduct::Sound, None)
    }

    /// A finding that decides nothing although the clause may have been exercised, with the reason.
    #[must_use]
    pub fn inconclusive(
        clause: impl Into<String>,
        exercised: u64,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            clause: clause.into(),
            verdict: Verdict::Inconclusive,
            exercised,
            reason: Some(reason.into()),
            violations: Vec::new(),
            more_violations: 0,
        }
    }

    /// All violations, listed or not, a count.
    #[must_use]
    pub fn violation_count(&self) -> u64 {
        (self.violations.len() as u64).saturating_add(self.more_violations)
    }

    /// Whether the test met the clause at all.
    #[must_use]
    pub fn is_exercised(&self) -> bool {
        self.exercised > 0 || self.violation_count() > 0 || self.verdict == Verdict::Fail
    }
}

/// One place where a clause was violated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Violation {
    /// Frame numbers in the capture, from 1, as capture viewers count; empty when the violation is not on the wire.
    pub frames: Vec<u64>,
    /// What the clause asks for.
    pub expected: String,
    /// What was there instead.
    pub seen: String,
}

/// A clause that no monitor judges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unmonitored {
    /// Clause id.
    pub clause: String,
    /// Why it is not judged.
    pub reason: String,
}

/// Counts over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Over the selected clauses.
    pub clauses: Counts,
    /// Over the selected tests.
    pub tests: Counts,
}

/// How many of something have each verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Those that pass.
    pub pass: u64,
    /// Those that are inconclusive.
    pub inconclusive: u64,
    /// Those that fail.
    pub fail: u64,
    /// Those the harness could not judge by its own fault.
    pub error: u64,
    /// Those the PICS excludes.
    pub not_applicable: u64,
}

impl Counts {
    /// Counts the verdicts.
    #[must_use]
    pub fn of(verdicts: impl IntoIterator<Item = Verdict>) -> Self {
        let mut counts = Self::default();
        for verdict in verdicts {
            let slot = match verdict {
                Verdict::Pass => &mut counts.pass,
                Verdict::Inconclusive => &mut counts.inconclusive,
                Verdict::Fail => &mut counts.fail,
                Verdict::Error => &mut counts.error,
                Verdict::NotApplicable => &mut counts.not_applicable,
            };
            *slot += 1;
        }
        counts
    }

    /// How many have this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> u64 {
        match verdict {
            Verdict::Pass => self.pass,
            Verdict::Inconclusive => self.inconclusive,
            Verdict::Fail => self.fail,
            Verdict::Error => self.error,
            Verdict::NotApplicable => self.not_applicable,
        }
    }
}
