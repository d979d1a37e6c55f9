//! All monitors of one judged side, and the one list of them.

use std::collections::BTreeMap;

use metaroce_reports::{Finding, Violation};
use metaroce_wire::frame::FrameError;

use super::check::{Check, Rule};
use super::{
    acks, completions, conventions, ecn, handshake, messages, packets, paths, placement, probes,
    prompt, repair, requests, streams, timeouts,
};
use crate::evidence::Event;
use crate::model::{Context, Model, Sighting};
use crate::trace::Observation;

/// Violations of a clause that are kept in full; the rest is counted.
const KEPT: usize = 20;

/// Judges one clause for one judged side.
pub trait Monitor {
    /// Looks at a packet at the tap of the judged side. `model` holds everything up to and including it.
    fn sighting(&mut self, _s: &Sighting<'_>, _model: &Model, _tally: &mut Tally) {}

    /// Looks at something that a party said, once every packet that can have preceded it has been seen.
    fn event(&mut self, _event: &Event, _model: &Model, _tally: &mut Tally) {}

    /// Settles what is still open at the end of the trace.
    fn finish(&mut self, _model: &Model, _tally: &mut Tally) {}
}

/// What a monitor has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Opportunities to violate the clause, a count.
    pub exercised: u64,
    /// The first violations, in the order of the capture.
    pub violations: Vec<Violation>,
    /// Violations beyond those, a count.
    pub more: u64,
    /// Why nothing can be concluded although nothing was violated.
    pub inconclusive: Option<String>,
}

impl Tally {
    /// The clause applied and was kept.
    pub fn held(&mut self) {
        self.exercised += 1;
    }

    /// The clause applied, and whether it was kept cannot be told.
    pub fn met(&mut self) {
        self.exercised += 1;
    }

    /// The clause applied and was violated.
    pub fn broken(
        &mut self,
        frames: Vec<u64>,
        expected: impl Into<String>,
        seen: impl Into<String>,
    ) {
        self.exercised += 1;
        if self.violations.len() < KEPT {
            self.violations.push(Violation {
                frames,
                expected: expected.into(),
                seen: seen.into(),
            });
        } else {
            self.more += 1;
        }
    }

    /// Nothing can be concluded from what was exercised.
    pub fn unsure(&mut self, reason: impl FnOnce() -> String) {
        self.inconclusive.get_or_insert_with(reason);
    }

    /// The finding on `clause`: fail when it was violated, otherwise inconclusive where nothing can be concluded.
    pub fn finding(self, clause: &str) -> Finding {
        match self.inconclusive {
            Some(reason) if self.violations.is_empty() => {
                Finding::inconclusive(clause, self.exercised, reason)
            }
            _ => Finding::judged(clause, self.exercised, self.violations, self.more),
        }
    }
}

/// How a monitor is made.
#[derive(Clone, Copy)]
pub enum Make {
    /// A rule for one packet.
    Rule(Rule),
    /// A monitor with memory.
    Monitor(fn() -> Box<dyn Monitor>),
}

/// A monitor of the list.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The clause that it judges.
    pub clause: &'static str,
    /// Its file below `monitors`.
    pub file: &'static str,
    /// What it looks for, one line.
    pub purpose: &'static str,
    /// How it is made.
    pub make: Make,
}

impl Entry {
    /// A monitor that has seen nothing.
    pub fn start(&self) -> Box<dyn Monitor> {
        match self.make {
            Make::Rule(rule) => Box::new(Check(rule)),
            Make::Monitor(make) => make(),
        }
    }
}

/// Clauses whose monitors are held in reserve, because no scenario of the suite can exercise them, and why.
pub const RESERVE: &[(&str, &str)] = &[(
    "CONN-024",
    "a schedule that loses a request eight times is refused as one that nobody survives",
)];

/// Every monitor that is used in a run, in the order of the clauses' ids.
pub fn catalogue() -> Vec<Entry> {
    let mut all = everything();
    all.retain(|entry| RESERVE.iter().all(|(clause, _)| *clause != entry.clause));
    all
}

/// Every monitor, those in reserve included.
pub fn everything() -> Vec<Entry> {
    let lists: [&[Entry]; 15] = [
        conventions::MONITORS,
        packets::MONITORS,
        handshake::MONITORS,
        requests::MONITORS,
        streams::MONITORS,
        messages::MONITORS,
        completions::MONITORS,
        placement::MONITORS,
        paths::MONITORS,
        acks::MONITORS,
        prompt::MONITORS,
        repair::MONITORS,
        timeouts::MONITORS,
        probes::MONITORS,
        ecn::MONITORS,
    ];
    let mut all: Vec<Entry> = lists.concat();
    all.sort_by_key(|entry| entry.clause);
    all
}

/// What judges each clause: the files of its monitors.
pub fn coverage() -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in catalogue() {
        let by = format!("monitor {}", entry.file.trim_end_matches(".rs"));
        all.entry(entry.clause.to_owned()).or_default().push(by);
    }
    all
}

/// All monitors for one judged side, and the model that they share.
pub struct Panel {
    model: Model,
    running: Vec<(Entry, Box<dyn Monitor>, Tally)>,
}

impl Panel {
    /// The monitors of [`catalogue`], which have seen nothing.
    pub fn new(context: Context) -> Self {
        Self::of(context, catalogue())
    }

    /// The same with those in reserve.
    pub fn everything(context: Context) -> Self {
        Self::of(context, everything())
    }

    fn of(context: Context, entries: Vec<Entry>) -> Self {
        let start = |entry: Entry| (entry, entry.start(), Tally::default());
        Self {
            model: Model::new(context),
            running: entries.into_iter().map(start).collect(),
        }
    }

    /// What is known so far.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Notes that time has come so far, by an observation at the other tap or an event.
    pub fn advance(&mut self, now: u64) {
        self.model.advance(now);
    }

    /// Shows an observation at the judged side's tap to all of them.
    ///
    /// # Errors
    /// [`FrameError`] when it is no UDP datagram.
    pub fn observe(&mut self, frame: u64, observation: &Observation) -> Result<(), FrameError> {
        // What follows something that is not tracked could be misread.
        if self.model.untracked.is_some() {
            return Ok(());
        }
        let sighting = self.model.take(frame, observation)?;
        for (_, monitor, tally) in &mut self.running {
            monitor.sighting(&sighting, &self.model, tally);
        }
        Ok(())
    }

    /// Shows an event to all of them.
    pub fn event(&mut self, event: &Event) {
        if self.model.untracked.is_some() {
            return;
        }
        self.model.take_event(event);
        for (_, monitor, tally) in &mut self.running {
            monitor.event(event, &self.model, tally);
        }
    }

    /// Ends the trace: what was found, clause by clause.
    pub fn finish(self) -> Vec<(Entry, Tally)> {
        let mut found = Vec::new();
        for (entry, mut monitor, mut tally) in self.running {
            match &self.model.untracked {
                None => monitor.finish(&self.model, &mut tally),
                Some(why) => tally.unsure(|| format!("the trace exceeds what is tracked: {why}")),
            }
            found.push((entry, tally));
        }
        found
    }
}

/// Joins what was found for each judged side into one finding a clause.
pub fn merge(sides: Vec<(String, Vec<(Entry, Tally)>)>) -> Vec<Finding> {
    let several = sides.len() > 1;
    let mut all: BTreeMap<&'static str, Tally> = BTreeMap::new();
    for (side, found) in sides {
        for (entry, mut tally) in found {
            if several {
                for violation in &mut tally.violations {
                    violation.seen = format!("{side}: {}", violation.seen);
                }
            }
            let sum = all.entry(entry.clause).or_default();
            sum.exercised += tally.exercised;
            sum.more += tally.more;
            sum.violations.append(&mut tally.violations);
            if let Some(reason) = tally.inconclusive {
                sum.unsure(|| format!("{side}: {reason}"));
            }
        }
    }
    let settled = |(clause, mut tally): (&'static str, Tally)| {
        tally
            .violations
            .sort_by_key(|violation| violation.frames.first().copied());
        let extra = tally.violations.len().saturating_sub(KEPT);
        tally.violations.truncate(KEPT);
        tally.more += extra as u64;
        tally.finding(clause)
    };
    all.into_iter().map(settled).collect()
}
