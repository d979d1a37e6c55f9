//! Chapter 6, reliability: sending, and sending again.

use metaroce_wire::metaroce::Flags;
use metaroce_wire::serial::Psn;

use super::check::{Found, data, equal, holds, new_data, rules};
use super::due::{Due, Dues};
use super::panel::{Make, Monitor, Tally};
use crate::model::{DataSent, Model, Relation, SentPacket, Sighting};

/// Packets past the cumulative acknowledgment, at most.
const WINDOW: u32 = 256;
/// Packets that a path may have under way at first.
const FIRST_WINDOW: u32 = 16;
/// Smallest retransmission timeout, ns.
pub(super) const LEAST_RTO: u64 = 10_000_000;
/// How soon after an arrival, or a transmission of its own, a packet was surely sent because of it and not of a timer, ns.
const REACTION: u64 = 1_000_000;

rules! { "repair.rs":
    "REL-001" "a path begins with the ISN" => Make::Rule(|s, _| new_data(s, |cbh, data| match data.last_new {
        None => equal("PSN", data.isn.value(), cbh.psn.value()),
        Some(_) => Found::Skip,
    }));
    "REL-002" "new packets are numbered one by one" => Make::Rule(|s, _| new_data(s, |cbh, data| match data.last_new {
        // The wrap is a clause of its own.
        Some(last) if last.value() != u32::MAX => equal("PSN", last.add(1).value(), cbh.psn.value()),
        _ => Found::Skip,
    }));
    "REL-003" "nothing is sent more than 256 past CumPSN" => Make::Rule(|s, _| new_data(s, |cbh, data| {
        let ahead = cbh.psn.distance_from(data.cum);
        // A path that has no more under way than its first window is far from the limit.
        if ahead <= FIRST_WINDOW { return Found::Skip; }
        holds(ahead <= WINDOW, format!("at most {WINDOW} past CumPSN {}", data.cum), || format!("PSN {}, {ahead} past it", cbh.psn))
    }));
    "REL-026" "a packet is sent again under its own PSN, on its own path" => Make::Rule(|s, _| data(s, |cbh, data| {
        let moved = data.message.is_some_and(|message| message.piece_again);
        match data.before {
            Some(_) => Found::Held,
            None if moved => Found::Broken("the path and PSN of the first transmission".into(), format!("the same piece on path {} under PSN {}", cbh.path, cbh.psn)),
            None => Found::Skip,
        }
    }));
    "REL-027" "a packet is sent again with the same bytes" => Make::Rule(|s, _| again(s, |_, before, data| {
        if data.same_bytes { return Found::Held; }
        Found::BrokenWith(vec![before.first_frame], "the bytes of the first transmission".into(), format!("others under PSN {}", data.psn))
    }));
    "REL-028" "RTX on every retransmission" => Make::Rule(|s, _| again(s, |flags, before, data| {
        if flags.has(Flags::RTX) { return Found::Held; }
        Found::BrokenWith(vec![before.first_frame], "RTX".into(), format!("PSN {} again without", data.psn))
    }));
    "REL-029" "no RTX on a first transmission" => Make::Rule(|s, _| new_data(s, |cbh, _| holds(!cbh.flags.has(Flags::RTX), "no RTX", || format!("RTX on PSN {}", cbh.psn))));
    "REL-030" "what has arrived is not sent again" => Make::Rule(|s, model| again(s, |_, before, data| match before.reported {
        Some((frame, at)) if model.knows(at, s.time) => Found::BrokenWith(
            vec![frame],
            format!("nothing more of PSN {}", data.psn),
            format!("it again, {} ns after the report", s.time - at),
        ),
        // The report and the retransmission may have crossed.
        Some((_, at)) if s.time <= at + model.slack_ns() => Found::Skip,
        Some((_, at)) => Found::Unsure(format!(
            "PSN {} again {} ns after the report, which the machine may have held up",
            data.psn,
            s.time - at
        )),
        None => Found::Held,
    }));
    "REL-031" "a gap is repaired at once" => Make::Monitor(|| Box::new(Repairs::new(Cause::Gap)));
    "REL-032" "nothing is sent again without evidence of its loss" => Make::Rule(|s, model| again(s, |_, before, data| {
        if before.transmissions > 1 { return Found::Skip; }
        evidence(s, model, before, data)
    }));
    "REL-033" "nothing is sent a third time without new evidence" => Make::Rule(|s, model| again(s, |_, before, data| {
        if before.transmissions == 1 { return Found::Skip; }
        evidence(s, model, before, data)
    }));
    "REL-034" "a lost retransmission is repaired at once" => Make::Monitor(|| Box::new(Repairs::new(Cause::LostRepair)));
    "REL-040" "what a probe's answer lacks is repaired at once" => Make::Monitor(|| Box::new(Repairs::new(Cause::Answer)));
}

/// A rule for retransmissions.
pub(super) fn again(
    s: &Sighting<'_>,
    rule: impl FnOnce(Flags, &SentPacket, &DataSent) -> Found,
) -> Found {
    data(s, |cbh, sent| match &sent.before {
        Some(before) => rule(cbh.flags, before, sent),
        None => Found::Skip,
    })
}

/// Whether nothing but a timeout can have caused a retransmission.
pub(super) fn by_timeout(data: &DataSent) -> bool {
    !data.proof.gap && !data.proof.probe
}

/// Whether a retransmission followed so soon on something that no timer can have caused it.
pub(super) fn is_reaction(s: &Sighting<'_>, model: &Model, data: &DataSent) -> bool {
    let since = s
        .time
        .saturating_sub(model.delivered_at)
        .min(data.proof.idle_ns);
    since <= REACTION.max(model.slack_ns())
}

fn evidence(s: &Sighting<'_>, model: &Model, before: &SentPacket, data: &DataSent) -> Found {
    // What has been reported is sent again against another clause.
    if before.reported.is_some() {
        return Found::Skip;
    }
    // A minimum is strict, but for how exactly the tap can measure it.
    let slack = model.slack_ns();
    if by_timeout(data) && slack >= LEAST_RTO {
        return Found::Skip;
    }
    let waited = data.proof.idle_ns + slack;
    // Soon, but by a timer: a timeout that came too early.
    let early_timeout = !is_reaction(s, model, data);
    let shown = !by_timeout(data) || waited >= LEAST_RTO || early_timeout;
    // Of several packets that a timeout makes lost the later ones follow on the first.
    let burst = model.connection(s).is_some_and(|connection| {
        let path = connection.out.get(&data.path);
        path.is_some_and(|path| {
            path.timeouts > 1 && before.first_frame < s.frame && data.proof.probed
        })
    });
    if shown || burst {
        Found::Held
    } else {
        Found::BrokenWith(
            vec![before.last_frame],
            "a gap, a probe's answer or a timeout that shows the loss".into(),
            format!(
                "PSN {} again after {} ns without",
                data.psn,
                s.time - before.last_time
            ),
        )
    }
}

/// What shows that a packet is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Gap,
    LostRepair,
    Answer,
}

/// Losses that must be repaired at once.
struct Repairs {
    cause: Cause,
    /// Path, PSN and how often it had been sent.
    dues: Dues<(u8, Psn, u32)>,
}

impl Repairs {
    fn new(cause: Cause) -> Self {
        Self {
            cause,
            dues: Dues::default(),
        }
    }

    fn fits(&self, answer: bool, transmissions: u32) -> bool {
        match self.cause {
            Cause::Gap => !answer && transmissions == 1,
            // A packet that has been sent eight times waits for the timeout (REL-060).
            Cause::LostRepair => !answer && (2..8).contains(&transmissions),
            Cause::Answer => answer && transmissions < 8,
        }
    }

    /// Whether a packet must still be repaired.
    fn applies(model: &Model, (path, psn, times): &(u8, Psn, u32)) -> bool {
        model.established().is_some_and(|connection| {
            let packet = connection.out.get(path).and_then(|path| path.packet(*psn));
            !connection.closing.has_begun()
                && packet.is_some_and(|packet| {
                    packet.reported.is_none() && packet.transmissions == *times
                })
        })
    }
}

impl Monitor for Repairs {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, tally: &mut Tally) {
        if let Relation::DataSent(data) = &s.relation
            && data.before.is_some()
        {
            let again = |(path, psn, _): &(u8, Psn, u32)| (*path, *psn) == (data.path, data.psn);
            self.dues.settle(s.time, s.frame, tally, again);
        }
        self.dues
            .expire(s.time, tally, |key| Self::applies(model, key));
        match &s.relation {
            Relation::AckArrived(ack) if !ack.lost.is_empty() => {
                let Some(path) = model.connection(s).and_then(|c| c.out.get(&ack.path)) else {
                    return;
                };
                // With its window cut, by a mark or a timeout, a path may have to wait for room; where packets may overtake
                // each other a gap need not count at once.
                if path.marked || path.timeouts > 0 || path.unsettled {
                    return;
                }
                let allowance = model.context.allowance_ns;
                // Whoever does not repair at once does so after a timeout.
                if let Some(why) = model.too_coarse(LEAST_RTO) {
                    tally.unsure(|| why);
                }
                for psn in &ack.lost {
                    let Some(packet) = path.packet(*psn) else {
                        continue;
                    };
                    if self.fits(ack.answer, packet.transmissions) {
                        self.dues.add(Due {
                            key: (ack.path, *psn, packet.transmissions),
                            since: s.time,
                            sure: s.time + model.slack_ns(),
                            deadline: s.time + allowance,
                            frames: vec![packet.last_frame, s.frame],
                            expected: format!("PSN {psn} of path {} again at once", ack.path),
                        });
                    }
                }
            }
            _ => {}
        }
    }

    fn finish(&mut self, model: &Model, tally: &mut Tally) {
        self.dues
            .expire(model.now, tally, |key| Self::applies(model, key));
    }
}
