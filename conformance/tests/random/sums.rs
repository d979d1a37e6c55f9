//! What many runs have shown together.

use std::collections::BTreeMap;

use metaroce_conformance::monitors;
use metaroce_reports::{Conduct, TestResult, Verdict};

/// What became of one clause.
#[derive(Default)]
struct Clause {
    /// Runs in which it passed.
    passed: u64,
    /// Opportunities to violate it in those.
    opportunities: u64,
    /// Runs in which it was met and nothing could be concluded, by reason.
    undecided: BTreeMap<String, u64>,
}

/// Counts over runs.
pub struct Sums {
    runs: u64,
    /// Runs that were not sound, by reason: in these nothing passes.
    unsound: BTreeMap<String, u64>,
    clauses: BTreeMap<String, Clause>,
}

impl Sums {
    /// Nothing yet, for every clause that has a monitor.
    pub fn new() -> Self {
        let entries = monitors::catalogue().into_iter();
        Self {
            runs: 0,
            unsound: BTreeMap::new(),
            clauses: entries
                .map(|entry| (entry.clause.to_owned(), Clause::default()))
                .collect(),
        }
    }

    /// Counts a run.
    pub fn add(&mut self, test: &TestResult) {
        self.runs += 1;
        if test.conduct != Conduct::Sound {
            let reason = plain(test.reason.as_deref());
            *self.unsound.entry(reason).or_default() += 1;
            return;
        }
        for finding in &test.findings {
            let clause = self.clauses.entry(finding.clause.clone()).or_default();
            match finding.verdict {
                Verdict::Pass => {
                    clause.passed += 1;
                    clause.opportunities += finding.exercised;
                }
                Verdict::Inconclusive if finding.exercised > 0 => {
                    let reason = plain(finding.reason.as_deref());
                    *clause.undecided.entry(reason).or_default() += 1;
                }
                _ => {}
            }
        }
    }

    /// How many clauses passed in at least one run.
    pub fn exercised(&self) -> usize {
        self.clauses.len() - self.unexercised().len()
    }

    /// Clauses that passed in none.
    fn unexercised(&self) -> Vec<&str> {
        self.clauses
            .iter()
            .filter(|(_, clause)| clause.passed == 0)
            .map(|(id, _)| id.as_str())
            .collect()
    }

    /// For people: how much was exercised, and everything that could not be concluded.
    pub fn summary(&self) -> String {
        let (all, exercised) = (self.clauses.len(), self.exercised());
        let opportunities: u64 = self.clauses.values().map(|c| c.opportunities).sum();
        let mut text = format!(
            "{} runs; {exercised} of {all} clauses with a monitor passed in some, with {opportunities} opportunities\n",
            self.runs
        );
        text += &format!("in no run: {}\n", self.unexercised().join(" "));
        for (reason, runs) in &self.unsound {
            text += &format!("unsound, {runs} runs: {reason}\n");
        }
        for (id, clause) in &self.clauses {
            for (reason, runs) in &clause.undecided {
                text += &format!("inconclusive, {runs} runs: {id}: {reason}\n");
            }
        }
        text
    }
}

/// A reason without its numbers, so that runs can be counted by it.
fn plain(reason: Option<&str>) -> String {
    let mut text = String::new();
    for c in reason.unwrap_or("no reason").chars() {
        match c {
            '0'..='9' if text.ends_with('#') => {}
            '0'..='9' => text.push('#'),
            _ => text.push(c),
        }
    }
    text
}
