//! Reliability and ECN echo, the receiver's part: every acknowledgment against what had arrived.

use metaroce_wire::metaroce::{AckFlags, AckHeader, Body, Cbh, Flags, Opcode, Sack};
use metaroce_wire::serial::Psn;

use super::check::{Check, Outcome, equal, holds};
use super::{Context, Monitor, Tally, entries};
use crate::model::{Arrival, Arrived, Bad, RxView, Sighting};

entries! { "receiving":
    "CONV-006" => Unacknowledged::of(Bad::Crc),
    "CONV-010" => Unacknowledged::of(Bad::Version),
    "CONV-011" => Unacknowledged::of(Bad::Malformed),
    "CONN-030" => Unacknowledged::of(Bad::Dcid),
    "STRM-004" => Unacknowledged::of(Bad::Stream),
    "PATH-008" => Unacknowledged::of(Bad::Path),
    "REL-004" => Unacknowledged::of(Bad::OutOfWindow),
    "REL-005" => Check(|s, c| triggered(s, c, |a, trigger| {
        // Packets reach the judged side in the order of the tap: what came before the trigger has been seen.
        if a.rx.out_of_window.is_none_or(|number| trigger.number < number) { return Outcome::Skip; }
        holds(a.header.ack_flags & AckFlags::OUT_OF_WINDOW_SEEN.0 != 0, "out of window seen", || format!("flags {:#06x}", a.header.ack_flags))
    })),
    "REL-007" => Check(|s, c| ack(s, c, |a| {
        holds(a.cbh.psn.precedes_or_is(a.rx.cum), &format!("at most CumPSN {}", a.rx.cum), || format!("{}", a.cbh.psn))
    })),
    "REL-008" => Check(|s, c| ack(s, c, |a| {
        if a.sack.is_empty() { return Outcome::Skip; }
        let wrong = a.sack.ones().find(|bit| !a.rx.has(a.cbh.psn.add(1 + bit)));
        holds(wrong.is_none(), "bits only for what has arrived", || format!("bit {wrong:?} over CumPSN {}", a.cbh.psn))
    })),
    "REL-009" => Check(|s, c| ack(s, c, |a| match a.rx.told {
        Some((told, ..)) => holds(!a.cbh.psn.precedes(told), &format!("CumPSN {told} or later"), || format!("{}", a.cbh.psn)),
        None => Outcome::Skip,
    })),
    "REL-010" => Check(|s, c| ack(s, c, |a| match a.rx.told {
        Some((cum, sack, _)) if !sack.is_empty() => {
            let told = sack.ones().map(|bit| cum.add(1 + bit));
            let gone = told.into_iter().find(|psn| !psn.precedes_or_is(a.cbh.psn) && !a.sack.contains(a.cbh.psn, *psn));
            holds(gone.is_none(), "everything that was reported before", || format!("PSN {gone:?} is missing"))
        }
        _ => Outcome::Skip,
    })),
    "REL-011" => Check(|s, c| ack(s, c, |a| {
        if a.cbh.opcode != Opcode::ACK_SACK { return Outcome::Skip; }
        holds(!a.sack.bit(0), "bit 0 zero", || "bit 0 set".into())
    })),
    "REL-012" => Check(|s, c| triggered(s, c, |a, trigger| {
        if trigger.state.1.is_empty() { return Outcome::Skip; }
        equal("opcode", Opcode::ACK_SACK.0, a.cbh.opcode.0)
    })),
    "REL-013" => Check(|s, c| triggered(s, c, |a, trigger| {
        let (cum, sack) = trigger.state;
        let behind = a.cbh.psn.precedes(cum);
        let missing = sack.ones().map(|bit| cum.add(1 + bit)).find(|psn| !psn.precedes_or_is(a.cbh.psn) && !a.sack.contains(a.cbh.psn, *psn));
        holds(!behind && missing.is_none(), &format!("CumPSN {cum} and all beyond it"), || format!("CumPSN {}, missing {missing:?}", a.cbh.psn))
    })),
    "REL-020" => Check(|s, c| triggered(s, c, |a, trigger| {
        if unsure(a, c) || trigger.duplicates <= a.rx.told_duplicates() { return Outcome::Skip; }
        holds(a.header.ack_flags & AckFlags::DUPLICATE_SEEN.0 != 0, "duplicate seen", || format!("flags {:#06x}", a.header.ack_flags))
    })),
    "REL-021" => Check(|s, c| triggered(s, c, |a, trigger| {
        if unsure(a, c) || trigger.duplicates > a.rx.told_duplicates() { return Outcome::Skip; }
        holds(a.header.ack_flags & AckFlags::DUPLICATE_SEEN.0 == 0, "no duplicate seen", || format!("flags {:#06x}", a.header.ack_flags))
    })),
    "REL-022" => Echo::default(),
    "REL-024" => Check(|s, c| triggered(s, c, |a, trigger| equal("RTXE", trigger.rtx, a.cbh.flags.has(Flags::RTXE)))),
    "REL-025" => Check(|s, c| triggered(s, c, |a, trigger| equal("stream", trigger.stream, a.header.stream))),
    "REL-038" => Check(|s, c| match (s.sent, s.lax.body, s.cbh()) {
        (true, Some(Body::PathProbeAck(probe)), Some(cbh)) => match c.view.rx.get(&cbh.path) {
            Some(rx) => {
                let wrong = probe.sack.ones().find(|bit| !rx.has(probe.cum_psn.add(1 + bit)));
                holds(probe.cum_psn.precedes_or_is(rx.cum) && wrong.is_none(), "only what has arrived", || format!("CumPSN {}, bit {wrong:?}", probe.cum_psn))
            }
            None => Outcome::Skip,
        },
        _ => Outcome::Skip,
    }),
    "ECN-003" => Check(|s, c| triggered(s, c, |a, trigger| equal("CE count", trigger.counts.0, a.header.ce_count))),
    "ECN-004" => Check(|s, c| triggered(s, c, |a, trigger| equal("ECT count", trigger.counts.1, a.header.ect_count))),
    "ECN-008" => Check(|s, c| ack(s, c, |a| match a.rx.told {
        Some((.., told)) => {
            let back = |new: u32, old: u32| Psn::new(new).precedes(Psn::new(old));
            let lower = back(a.header.ce_count, told.ce_count) || back(a.header.ect_count, told.ect_count);
            holds(!lower, "counts that do not fall", || format!("{} and {} after {} and {}", a.header.ce_count, a.header.ect_count, told.ce_count, told.ect_count))
        }
        None => Outcome::Skip,
    })),
}

/// An acknowledgment that the judged side sends, with what had arrived on its path.
struct Acknowledgment<'a> {
    cbh: &'a Cbh,
    header: AckHeader,
    sack: Sack,
    rx: &'a RxView,
}

fn ack(
    s: &Sighting<'_>,
    c: &Context<'_>,
    rule: impl FnOnce(&Acknowledgment<'_>) -> Outcome,
) -> Outcome {
    let (header, sack) = match s.lax.body {
        Some(Body::Ack(ack)) if s.sent => (ack.header, Sack::EMPTY),
        Some(Body::AckSack(ack)) if s.sent => (ack.header, ack.sack),
        _ => return Outcome::Skip,
    };
    match s
        .cbh()
        .and_then(|cbh| Some((cbh, c.view.rx.get(&cbh.path)?)))
    {
        Some((cbh, rx)) => rule(&Acknowledgment {
            cbh,
            header,
            sack,
            rx,
        }),
        None => Outcome::Skip,
    }
}

/// A rule for an acknowledgment and the arrival that it follows, which it names by its timestamp. An echo that names
/// none is for REL-022 to judge.
fn triggered(
    s: &Sighting<'_>,
    c: &Context<'_>,
    rule: impl Fn(&Acknowledgment<'_>, &Arrived) -> Outcome,
) -> Outcome {
    ack(s, c, |a| {
        if a.header.ack_flags & AckFlags::ECHO_VALID.0 == 0 {
            return Outcome::Skip;
        }
        let triggers = a.rx.triggers(a.header.timestamp_echo);
        if c.allowance() == 0 {
            return triggers
                .last()
                .map_or(Outcome::Skip, |trigger| rule(a, trigger));
        }
        // Which of two copies the judged side had seen is not known: one that fits is enough.
        let mut said = Outcome::Skip;
        for trigger in triggers {
            said = rule(a, trigger);
            if !matches!(said, Outcome::Broken(..)) {
                break;
            }
        }
        said
    })
}

/// Whether it is not known, on a real link, how many duplicates this acknowledgment or the one before it could tell of.
fn unsure(a: &Acknowledgment<'_>, c: &Context<'_>) -> bool {
    c.allowance() > 0 && (!a.rx.told_surely || a.rx.triggers(a.header.timestamp_echo).count() > 1)
}

/// The echoed timestamp is that of the latest arrival; on a real link one of the latest few.
#[derive(Default)]
struct Echo {
    recent: std::collections::BTreeMap<u8, Vec<(u32, u64)>>,
}

impl Monitor for Echo {
    fn sighting(&mut self, s: &Sighting<'_>, c: &Context<'_>, tally: &mut Tally) {
        if let (Some(cbh), Some(Arrival::New | Arrival::Duplicate)) = (s.cbh(), c.view.arrival(s)) {
            let recent = self.recent.entry(cbh.path).or_default();
            recent.push((cbh.timestamp, s.time));
            // All but the latest that is older than the allowance can no longer be a trigger.
            let settled = recent
                .iter()
                .rposition(|(_, at)| at + c.allowance() < s.time)
                .unwrap_or(0);
            recent.drain(..settled);
        }
        let outcome = ack(s, c, |a| {
            if a.header.ack_flags & AckFlags::ECHO_VALID.0 == 0 {
                return Outcome::Skip;
            }
            let Some(recent) = self.recent.get(&a.cbh.path) else {
                return Outcome::Skip;
            };
            let good = if c.allowance() == 0 {
                recent
                    .last()
                    .is_some_and(|(stamp, _)| *stamp == a.header.timestamp_echo)
            } else {
                recent
                    .iter()
                    .any(|(stamp, _)| *stamp == a.header.timestamp_echo)
            };
            holds(good, "the timestamp of the latest arrival", || {
                format!("{:#010x}", a.header.timestamp_echo)
            })
        });
        match outcome {
            Outcome::Skip => {}
            Outcome::Held => tally.held(),
            Outcome::Broken(expected, seen) => tally.broken(vec![s.frame], expected, seen),
        }
    }
}

/// A packet that must be dropped is not acknowledged: no acknowledgment reports its PSN unless a sound packet has
/// brought it. Exercised by each such packet that an acknowledgment, or the end of the trace, has followed.
struct Unacknowledged {
    bad: Bad,
    open: u64,
}

impl Unacknowledged {
    fn of(bad: Bad) -> Self {
        Self { bad, open: 0 }
    }
}

impl Monitor for Unacknowledged {
    fn sighting(&mut self, s: &Sighting<'_>, c: &Context<'_>, tally: &mut Tally) {
        if c.view.arrival(s) == Some(Arrival::Bad(self.bad)) {
            self.open += 1;
        }
        let outcome = ack(s, c, |a| {
            let told = |psn: Psn| psn.precedes_or_is(a.cbh.psn) || a.sack.contains(a.cbh.psn, psn);
            let wrong =
                a.rx.bad
                    .iter()
                    .find(|(psn, (bad, _))| *bad == self.bad && told(Psn::new(**psn)));
            match wrong {
                Some((psn, (_, frame))) => Outcome::Broken(
                    format!("PSN {psn} not acknowledged, frame {frame} was to be dropped"),
                    format!("CumPSN {}", a.cbh.psn),
                ),
                None => Outcome::Skip,
            }
        });
        if let Outcome::Broken(expected, seen) = outcome {
            tally.broken(vec![s.frame], expected, seen);
        }
    }

    fn end(&mut self, _time: u64, _c: &Context<'_>, tally: &mut Tally) {
        (0..self.open).for_each(|_| tally.held());
    }
}
