//! Paths and reliability, the sender's part.

use std::collections::BTreeMap;

use metaroce_wire::metaroce::{Body, Cbh, Flags};

use super::check::{Check, Outcome, equal, holds};
use super::packets::data;
use super::{Context, Monitor, Tally, entries};
use crate::model::{Sighting, TxPacket};

/// A lost packet that is sent again "at once" is sent within this, ns, besides the allowance: the congestion window may
/// hold it back for round trips.
const AT_ONCE: u64 = 1_000_000;

entries! { "sending":
    "PATH-001" => Check(|s, c| data(s, |cbh| match c.view.agreed() {
        Some(agreed) => holds(u16::from(cbh.path) < agreed.paths && cbh.epoch == 0, &format!("a path below {}, epoch 0", agreed.paths), || format!("path {}, epoch {}", cbh.path, cbh.epoch)),
        None => Outcome::Skip,
    })),
    "PATH-002" => Check(|s, c| first(s, c, |cbh| {
        if c.view.tx.len() < 2 && c.view.tx.contains_key(&cbh.path) { return Outcome::Skip; }
        let other = c.view.tx.iter().find(|(path, tx)| **path != cbh.path && tx.port == s.src.port());
        holds(other.is_none(), "a source port of its own", || format!("port {} like path {:?}", s.src.port(), other.map(|(p, _)| p)))
    })),
    "PATH-003" => Check(|s, c| again(s, c, |cbh, _| match c.view.tx.get(&cbh.path) {
        Some(tx) => equal("source port", tx.port, s.src.port()),
        None => Outcome::Skip,
    })),
    "PATH-004" => Check(|s, c| match (s.sent, s.lax.body, s.cbh()) {
        (true, Some(Body::PathProbe(_)), Some(cbh)) => match c.view.tx.get(&cbh.path) {
            Some(tx) => equal("source port", tx.port, s.src.port()),
            None => Outcome::Skip,
        },
        _ => Outcome::Skip,
    }),
    "PATH-005" => Check(|s, c| first(s, c, |_| {
        let Some(agreed) = c.view.agreed() else { return Outcome::Skip };
        let total: u64 = c.view.tx.values().map(|tx| tx.sent).sum();
        if total < 16 * u64::from(agreed.paths) { return Outcome::Skip; }
        equal("paths used", usize::from(agreed.paths), c.view.tx.len())
    })),
    "PATH-010" => Check(|s, c| first(s, c, |cbh| match c.view.tx.get(&cbh.path) {
        Some(tx) if !tx.acked => holds(tx.sent < 16, "at most 16 before the first acknowledgment", || format!("number {}", tx.sent + 1)),
        _ => Outcome::Skip,
    })),
    "REL-001" => Check(|s, c| first(s, c, |cbh| match c.view.mine {
        Some(mine) if !c.view.tx.contains_key(&cbh.path) => equal("PSN", mine.isn.value(), cbh.psn.value()),
        _ => Outcome::Skip,
    })),
    "REL-002" => Check(|s, c| first(s, c, |cbh| match c.view.tx.get(&cbh.path) {
        Some(tx) => equal("PSN", tx.next.value(), cbh.psn.value()),
        None => Outcome::Skip,
    })),
    "REL-003" => Check(|s, c| data(s, |cbh| {
        let Some(mine) = c.view.mine else { return Outcome::Skip };
        let cum = c.view.tx.get(&cbh.path).map_or(mine.isn.sub(1), |tx| tx.cum);
        let ahead = cbh.psn.distance_from(cum);
        let behind = cbh.psn.precedes_or_is(cum);
        holds(behind || ahead <= 256, "at most 256 past the cumulative PSN", || format!("{ahead}"))
    })),
    "REL-026" => Check(|s, c| data(s, |cbh| {
        if !cbh.flags.has(Flags::RTX) { return Outcome::Skip; }
        holds(c.view.earlier(cbh).is_some(), "an earlier transmission on this path under this PSN", || format!("path {}, PSN {}", cbh.path, cbh.psn))
    })),
    "REL-027" => Check(|s, c| again(s, c, |_, earlier| {
        let image = crate::model::data_image(s.bytes);
        let at = image.iter().zip(&earlier.image).position(|(a, b)| a != b);
        holds(image == earlier.image, "the bytes of the first transmission", || format!("{} bytes, different from byte {at:?} on", image.len()))
    })),
    "REL-028" => Check(|s, c| again(s, c, |cbh, _| holds(cbh.flags.has(Flags::RTX), "RTX", || "no RTX".into()))),
    "REL-029" => Check(|s, c| first(s, c, |cbh| holds(!cbh.flags.has(Flags::RTX), "no RTX", || "RTX".into()))),
    "REL-030" => Check(|s, c| again(s, c, |_, earlier| match earlier.acked {
        Some(at) if at + c.allowance() < s.time => Outcome::Broken("nothing that was reported as arrived".into(), format!("reported {} ns before", s.time - at)),
        _ => Outcome::Held,
    })),
    "REL-031" => Repair::default(),
    "REL-032" => Check(|s, c| again(s, c, |cbh, earlier| {
        let timeout = may_be_timeout(s, c, cbh, earlier);
        holds(earlier.lost.is_some() || timeout, "evidence of its loss", || "none".into())
    })),
    "REL-033" => Check(|s, c| again(s, c, |cbh, earlier| {
        if earlier.count < 2 { return Outcome::Skip; }
        let timeout = may_be_timeout(s, c, cbh, earlier);
        holds(earlier.lost.is_some() || timeout, "new evidence for another repair", || "none".into())
    })),
    "REL-036" => Check(|s, c| match (s.sent, s.lax.body, s.cbh()) {
        (true, Some(Body::PathProbe(probe)), Some(cbh)) => match c.view.tx.get(&cbh.path) {
            Some(tx) => equal("highest PSN", tx.next.sub(1).value(), probe.highest_psn.value()),
            None => Outcome::Skip,
        },
        _ => Outcome::Skip,
    }),
}

/// Whether a retransmission may follow a timeout: a probe is out, or nothing has happened for the shortest timeout. On
/// a real link a report at the tap may have come too late to keep the judged side from its timeout.
fn may_be_timeout(s: &Sighting<'_>, c: &Context<'_>, cbh: &Cbh, earlier: &TxPacket) -> bool {
    c.view.tx.get(&cbh.path).is_some_and(|tx| {
        let just_reported = tx.report_at.is_some_and(|at| s.time <= at + c.allowance());
        let probed_for_it = tx.probe_at.is_some_and(|at| at >= earlier.time);
        tx.probed
            || s.time >= tx.progress + 10_000_000
            || (c.allowance() > 0 && just_reported && probed_for_it)
    })
}

/// A rule for the first transmission of a data packet.
fn first(s: &Sighting<'_>, c: &Context<'_>, rule: impl FnOnce(&Cbh) -> Outcome) -> Outcome {
    data(s, |cbh| {
        if c.view.earlier(cbh).is_none() {
            rule(cbh)
        } else {
            Outcome::Skip
        }
    })
}

/// A rule for every later transmission.
fn again(
    s: &Sighting<'_>,
    c: &Context<'_>,
    rule: impl FnOnce(&Cbh, &TxPacket) -> Outcome,
) -> Outcome {
    data(s, |cbh| {
        c.view
            .earlier(cbh)
            .map_or(Outcome::Skip, |earlier| rule(cbh, earlier))
    })
}

/// A packet shown to be lost is sent again at once, or as soon as the window lets it: as long as the path sends nothing
/// new before it, it is in time.
#[derive(Default)]
struct Repair {
    /// By path and PSN: when, and by which frame, the loss was shown.
    open: BTreeMap<(u8, u32), (u64, u64)>,
}

impl Monitor for Repair {
    fn sighting(&mut self, s: &Sighting<'_>, c: &Context<'_>, tally: &mut Tally) {
        // What the view has learnt from the packet before this one.
        for (path, psn, time, frame) in &c.view.newly_lost {
            self.open.entry((*path, *psn)).or_insert((*time, *frame));
        }
        let Some(cbh) = s.cbh().filter(|cbh| s.sent && cbh.opcode.is_data()) else {
            return;
        };
        let due = AT_ONCE + c.allowance();
        if let Some((at, frame)) = self.open.remove(&(cbh.path, cbh.psn.value())) {
            if s.time <= at + due {
                tally.held();
            } else {
                let expected = format!("sent again within {due} ns after its loss was shown");
                tally.broken(
                    vec![frame, s.frame],
                    expected,
                    format!("after {} ns", s.time - at),
                );
            }
        }
    }

    fn end(&mut self, time: u64, c: &Context<'_>, tally: &mut Tally) {
        let due = AT_ONCE + c.allowance();
        for ((path, psn), (at, frame)) in &self.open {
            let acked = c.view.mine.is_some_and(|mine| {
                let distance = psn.wrapping_sub(mine.isn.value());
                let packet = c.view.tx.get(path).and_then(|tx| tx.packets.get(&distance));
                packet.is_none_or(|packet| packet.acked.is_some())
            });
            if !acked && !c.view.closing && time > at + due {
                tally.broken(
                    vec![*frame],
                    "sent again after its loss was shown",
                    format!("path {path}, PSN {psn}: never"),
                );
            }
        }
    }
}
