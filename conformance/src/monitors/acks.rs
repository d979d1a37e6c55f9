//! Chapter 6, reliability: what the receiver reports.

use std::collections::BTreeMap;

use metaroce_wire::metaroce::{Body, Flags, Opcode};

use super::check::{Found, ack, holds, note, rules};
use super::conventions::Silence;
use super::panel::{Make, Monitor, Tally};
use crate::model::{AckSent, Arrival, Model, Relation, Sighting, SuspectClass};

rules! { "acks.rs":
    "STRM-023" "a packet is acknowledged although earlier messages lack some" => Make::Monitor(|| Box::<EarlyArrivals>::default());
    "REL-004" "what was outside the window is not reported" => Make::Monitor(|| Box::new(Silence::unacknowledged(SuspectClass::OutOfWindow)));
    "REL-005" "a packet outside the window is told in the next acknowledgment" => Make::Monitor(|| Box::<OutOfWindowTold>::default());
    "REL-007" "CumPSN covers nothing that has not arrived" => Make::Rule(|s, _| ack(s, |cbh, ack| {
        // One that a refused packet explains is charged to the clause that refuses it.
        let mut below = ack.false_below.iter();
        match below.find(|psn| s.answers.iter().all(|answer| answer.suspect.cbh.psn != **psn)) {
            None => Found::Held,
            Some(psn) => Found::Broken(format!("a CumPSN before {psn}, which has not arrived"), format!("CumPSN {}", cbh.psn)),
        }
    }));
    "REL-008" "no bit stands for what has not arrived" => Make::Rule(|s, _| ack(s, |cbh, ack| {
        if ack.sack.is_none_or(|sack| sack.is_empty()) { return Found::Skip; }
        // Bit 0 is another clause's affair.
        let mut bits = ack.false_bits.iter().filter(|psn| **psn != cbh.psn.add(1));
        match bits.find(|psn| s.answers.iter().all(|answer| answer.suspect.cbh.psn != **psn)) {
            None => Found::Held,
            Some(psn) => Found::Broken("bits for what has arrived alone".into(), format!("a bit for PSN {psn} over CumPSN {}", cbh.psn)),
        }
    }));
    "REL-009" "CumPSN does not go back" => Make::Rule(|s, _| ack(s, |cbh, ack| match ack.previous {
        Some(previous) if ack.cumulative < previous.cumulative => {
            let before = ack.isn.add(previous.cumulative as u32);
            Found::BrokenWith(vec![previous.frame], format!("CumPSN {before} or later"), format!("CumPSN {}", cbh.psn))
        }
        Some(_) => Found::Held,
        None => Found::Skip,
    }));
    "REL-010" "no report is taken back" => Make::Rule(|s, _| ack(s, |cbh, ack| match (ack.previous, ack.withdrawn.first()) {
        (Some(previous), Some(psn)) => Found::BrokenWith(vec![previous.frame], format!("PSN {psn}, which was reported"), format!("no bit for it over CumPSN {}", cbh.psn)),
        (Some(_), None) if ack.sack.is_some_and(|sack| !sack.is_empty()) => Found::Held,
        _ => Found::Skip,
    }));
    "REL-011" "bit 0 of the vector is 0" => Make::Rule(|s, _| match s.body {
        Some(Body::AckSack(ack)) if s.sent => holds(!ack.sack.bit(0), "bit 0 clear", || "bit 0 set".into()),
        _ => Found::Skip,
    });
    "REL-012" "a gap shows in the acknowledgment" => Make::Rule(|s, _| ack(s, |cbh, ack| {
        let Some(arrival) = ack.triggers.last().filter(|arrival| arrival.highest > arrival.cumulative) else { return Found::Skip };
        // A newer arrival may have closed the gap.
        let closed = ack.latest.is_some_and(|latest| latest.cumulative >= arrival.highest);
        if closed && ack.cumulative >= arrival.highest { return Found::Skip; }
        let found = holds(cbh.opcode == Opcode::ACK_SACK, "an ACK_SACK", || format!("an ACK with CumPSN {} behind a gap", cbh.psn));
        with_frame(found, arrival.frame)
    }));
    "REL-013" "everything up to the trigger is reported" => Make::Rule(|s, _| ack(s, |cbh, ack| {
        let Some(arrival) = known(ack) else { return Found::Skip };
        // An ACK in place of an ACK_SACK hides what is beyond the gap: that is another clause's affair.
        let hidden = cbh.opcode == Opcode::ACK && ack.cumulative >= arrival.cumulative;
        match ack.omitted.first().filter(|_| !hidden) {
            None => Found::Held,
            Some(psn) => Found::BrokenWith(vec![arrival.frame], format!("PSN {psn}, which had arrived"), format!("a report over CumPSN {} without it", cbh.psn)),
        }
    }));
    "REL-020" "a duplicate is told in the next acknowledgment" => Make::Monitor(|| Box::<DuplicateTold>::default());
    "REL-021" "no duplicate is told that has not come" => Make::Monitor(|| Box::<NoFalseDuplicate>::default());
    "REL-022" "the timestamp echoed is the trigger's" => Make::Rule(|s, _| ack(s, |_, ack| {
        let (Some(latest), true) = (ack.latest, s.answers.is_empty()) else { return Found::Skip };
        let found = holds(!ack.triggers.is_empty(), format!("timestamp {:08x}", latest.timestamp), || format!("timestamp {:08x}", ack.header.timestamp_echo));
        with_frame(found, latest.frame)
    }));
    "REL-023" "AckDelay does not exceed the time since the trigger" => Make::Rule(|s, _| ack(s, |_, ack| {
        let Some(trigger) = ack.triggers.last().filter(|_| ack.header.ack_delay != u16::MAX) else { return Found::Skip };
        let told = u64::from(ack.header.ack_delay) * 64;
        let waited = s.time - trigger.time;
        with_frame(holds(told <= waited, format!("at most {waited} ns"), || format!("{told} ns")), trigger.frame)
    }));
    "REL-024" "RTXE if and only if the trigger has RTX" => Make::Rule(|s, _| ack(s, |cbh, ack| {
        let set = cbh.flags.has(Flags::RTXE);
        of_trigger(ack, |trigger| trigger.rtx == set, || format!("RTXE {set}"), |trigger| format!("RTXE {}", trigger.rtx))
    }));
    "REL-025" "StreamID is the trigger's" => Make::Rule(|s, _| ack(s, |_, ack| {
        let stream = ack.header.stream;
        of_trigger(ack, |trigger| trigger.stream == stream, || format!("stream {stream}"), |trigger| format!("stream {}", trigger.stream))
    }));
}

/// The arrival whose consequences an acknowledgment must show: the trigger that it echoes, or else the latest of which it
/// must know.
pub(super) fn known(ack: &AckSent) -> Option<Arrival> {
    ack.triggers.last().copied().or(ack.definite)
}

/// Adds the frame of an arrival to a finding.
pub(super) fn with_frame(found: Found, frame: u64) -> Found {
    match found {
        Found::Broken(expected, seen) => Found::BrokenWith(vec![frame], expected, seen),
        other => other,
    }
}

/// A rule about the trigger: kept when any arrival that can be it fits.
pub(super) fn of_trigger(
    ack: &AckSent,
    fits: impl Fn(&Arrival) -> bool,
    seen: impl FnOnce() -> String,
    expected: impl FnOnce(&Arrival) -> String,
) -> Found {
    match ack.triggers.first() {
        None => Found::Skip,
        Some(_) if ack.triggers.iter().any(fits) => Found::Held,
        Some(trigger) => Found::BrokenWith(vec![trigger.frame], expected(trigger), seen()),
    }
}

/// Arrivals ahead of messages that lack packets, until an acknowledgment must show them.
#[derive(Default)]
struct EarlyArrivals {
    open: Vec<Arrival>,
}

impl Monitor for EarlyArrivals {
    fn sighting(&mut self, s: &Sighting<'_>, _: &Model, tally: &mut Tally) {
        match &s.relation {
            Relation::DataArrived(arrival) => {
                let plain = !arrival.duplicate && !arrival.doubtful && !arrival.ending;
                if arrival.early && plain && self.open.len() < 4096 {
                    self.open.push(*arrival);
                }
            }
            Relation::AckSent(ack) if !self.open.is_empty() => {
                self.open.retain(|arrival| {
                    if arrival.path != ack.path || !ack.covers(arrival.seq) {
                        return true;
                    }
                    // Whether a gap hides it in an ACK is another clause's affair.
                    let hidden = ack.sack.is_none() && ack.cumulative >= arrival.cumulative;
                    if !ack.omitted.contains(&arrival.psn) {
                        tally.held();
                    } else if !hidden {
                        let expected =
                            format!("PSN {}, of a message ahead of its turn", arrival.psn);
                        tally.broken(
                            vec![arrival.frame, s.frame],
                            expected,
                            "a report without it",
                        );
                    }
                    false
                });
            }
            _ => {}
        }
    }
}

/// Packets outside the window that wait to be told.
#[derive(Default)]
struct OutOfWindowTold {
    open: BTreeMap<u8, (u64, u64)>,
}

impl Monitor for OutOfWindowTold {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, tally: &mut Tally) {
        if let Some(suspect) = &s.suspect
            && suspect.class == SuspectClass::OutOfWindow
        {
            self.open.insert(suspect.cbh.path, (s.time, s.frame));
        }
        let Relation::AckSent(ack) = &s.relation else {
            return;
        };
        let Some((time, frame)) = self.open.get(&ack.path).copied() else {
            return;
        };
        if ack.out_of_window_flag {
            self.open.remove(&ack.path);
            tally.held();
        } else if model.knows(time, s.time) {
            self.open.remove(&ack.path);
            let expected = "the flag \"out of window seen\"";
            let seen = format!("ack flags {:#06x}", ack.header.ack_flags);
            tally.broken(vec![frame, s.frame], expected, seen);
        }
    }
}

/// Duplicates that wait to be told.
#[derive(Default)]
struct DuplicateTold {
    open: BTreeMap<u8, Arrival>,
}

impl Monitor for DuplicateTold {
    fn sighting(&mut self, s: &Sighting<'_>, _: &Model, tally: &mut Tally) {
        match &s.relation {
            Relation::DataArrived(arrival) if arrival.duplicate && !arrival.ending => {
                self.open.entry(arrival.path).or_insert(*arrival);
            }
            Relation::AckSent(ack) => {
                let Some(duplicate) = self.open.get(&ack.path).copied() else {
                    return;
                };
                if ack.duplicate_flag {
                    self.open.remove(&ack.path);
                    tally.held();
                } else if ack.covers(duplicate.seq) {
                    self.open.remove(&ack.path);
                    let expected = "the flag \"duplicate seen\"";
                    let seen = format!("ack flags {:#06x}", ack.header.ack_flags);
                    tally.broken(vec![duplicate.frame, s.frame], expected, seen);
                }
            }
            _ => {}
        }
    }
}

/// Acknowledgments between duplicates.
#[derive(Default)]
struct NoFalseDuplicate {
    /// By path: frame and time of the latest duplicate.
    latest: BTreeMap<u8, (u64, u64)>,
}

impl Monitor for NoFalseDuplicate {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, tally: &mut Tally) {
        match &s.relation {
            // A packet in doubt may be a duplicate to the receiver.
            Relation::DataArrived(arrival) if arrival.duplicate || arrival.doubtful => {
                self.latest.insert(arrival.path, (s.frame, s.time));
            }
            Relation::AckSent(ack) => {
                let since = ack
                    .previous
                    .map_or((0, 0), |previous| (previous.frame, previous.time));
                let due = self
                    .latest
                    .get(&ack.path)
                    .is_some_and(|(frame, time)| *frame > since.0 || !model.knows(*time, since.1));
                if due {
                    return;
                }
                let found = holds(!ack.duplicate_flag, "no flag \"duplicate seen\"", || {
                    format!("ack flags {:#06x}", ack.header.ack_flags)
                });
                note(tally, s.frame, with_frame(found, since.0));
            }
            _ => {}
        }
    }
}
