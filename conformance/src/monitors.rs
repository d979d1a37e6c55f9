//! Monitors: each judges one clause, for one judged side, from what passes its tap and what it reports.

mod answers;
mod check;
mod completions;
mod connections;
mod packets;
mod receiving;
mod sending;
mod streams;

use std::collections::BTreeMap;

use metaroce_reports::{Finding, Violation};

use crate::evidence::{Declaration, Event};
use crate::model::{Sighting, View};
use crate::trace::Side;

/// Violations that are kept in full; more are counted.
const KEPT: usize = 20;

/// What a monitor may look at besides the packet itself.
pub struct Context<'c> {
    /// The state before the packet.
    pub view: &'c View,
    /// How the test was made.
    pub declaration: &'c Declaration,
    /// The side that is judged.
    pub side: Side,
}

impl Context<'_> {
    /// How much later than it should something may be seen without being late, ns.
    pub fn allowance(&self) -> u64 {
        self.declaration.timing.allowance_ns
    }
}

/// What a monitor has found so far.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    exercised: u64,
    violations: Vec<Violation>,
    more: u64,
}

impl Tally {
    /// The rule applied, and held.
    pub fn held(&mut self) {
        self.exercised += 1;
    }

    /// The rule applied, and was broken.
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
}

/// A monitor at work.
pub trait Monitor {
    /// Looks at a packet at the judged side's tap.
    fn sighting(&mut self, _s: &Sighting<'_>, _c: &Context<'_>, _tally: &mut Tally) {}
    /// Looks at something the judged side reported.
    fn event(&mut self, _event: &Event, _c: &Context<'_>, _tally: &mut Tally) {}
    /// The trace ends at this time, ns.
    fn end(&mut self, _time: u64, _c: &Context<'_>, _tally: &mut Tally) {}
}

/// A monitor of the catalogue.
pub struct Entry {
    /// The clause it judges.
    pub clause: &'static str,
    /// The file it stands in.
    pub file: &'static str,
    make: fn() -> Box<dyn Monitor>,
}

/// Every monitor.
pub fn catalogue() -> Vec<Entry> {
    let mut all = Vec::new();
    all.extend(packets::monitors());
    all.extend(connections::monitors());
    all.extend(streams::monitors());
    all.extend(sending::monitors());
    all.extend(receiving::monitors());
    all.extend(answers::monitors());
    all.extend(completions::monitors());
    all
}

/// What covers each clause: the files of its monitors.
pub fn coverage() -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in catalogue() {
        all.entry(entry.clause.into())
            .or_default()
            .push(format!("monitor {}", entry.file));
    }
    all
}

/// What one monitor found: clause, exercises, violations kept, violations counted besides.
pub type Found = (String, u64, Vec<Violation>, u64);

/// All monitors for one judged side.
pub struct Bench {
    running: Vec<(&'static str, Box<dyn Monitor>, Tally)>,
    /// What the monitors share.
    pub view: View,
}

impl Default for Bench {
    fn default() -> Self {
        let running = catalogue()
            .into_iter()
            .map(|entry| (entry.clause, (entry.make)(), Tally::default()))
            .collect();
        Self {
            running,
            view: View::default(),
        }
    }
}

impl Bench {
    /// Shows a packet to all of them.
    pub fn sighting(&mut self, s: &Sighting<'_>, declaration: &Declaration, side: Side) {
        let context = Context {
            view: &self.view,
            declaration,
            side,
        };
        for (_, monitor, tally) in &mut self.running {
            monitor.sighting(s, &context, tally);
        }
        self.view.update(s);
    }

    /// Shows an event to all of them.
    pub fn event(&mut self, event: &Event, declaration: &Declaration, side: Side) {
        let context = Context {
            view: &self.view,
            declaration,
            side,
        };
        for (_, monitor, tally) in &mut self.running {
            monitor.event(event, &context, tally);
        }
    }

    /// Ends the trace.
    pub fn end(mut self, time: u64, declaration: &Declaration, side: Side) -> Vec<Found> {
        let context = Context {
            view: &self.view,
            declaration,
            side,
        };
        let mut findings = Vec::new();
        for (clause, monitor, tally) in &mut self.running {
            monitor.end(time, &context, tally);
            findings.push((
                (*clause).to_owned(),
                tally.exercised,
                std::mem::take(&mut tally.violations),
                tally.more,
            ));
        }
        findings
    }
}

/// Joins what was found for the judged sides into one finding a clause.
pub fn join(sides: Vec<Vec<Found>>) -> Vec<Finding> {
    let mut all: BTreeMap<String, (u64, Vec<Violation>, u64)> = BTreeMap::new();
    for (clause, exercised, violations, more) in sides.into_iter().flatten() {
        let sum = all.entry(clause).or_default();
        sum.0 += exercised;
        sum.1.extend(violations);
        sum.2 += more;
    }
    all.into_iter()
        .map(|(clause, (exercised, violations, more))| {
            Finding::judged(clause, exercised, violations, more)
        })
        .collect()
}

/// Makes the entries of a file.
macro_rules! entries {
    ($file:literal : $( $clause:literal => $make:expr ),+ $(,)?) => {
        pub(super) fn monitors() -> Vec<super::Entry> {
            vec![ $( super::Entry { clause: $clause, file: $file, make: || Box::new($make) } ),+ ]
        }
    };
}
pub(crate) use entries;
