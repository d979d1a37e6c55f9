//! Chapter 1, conventions.

use metaroce_wire::metaroce::{Cbh, Opcode};

use super::check::{Found, equal, holds, new_data, rules, sent};
use super::packets::fixed_len;
use super::panel::{Make, Monitor, Tally};
use crate::evidence::{Event, What};
use crate::model::{Model, Relation, Sighting, Suspect, SuspectClass};

/// Time after which silence has lasted, besides the allowance, ns.
pub(super) const PATIENCE: u64 = 5_000_000;
/// Smallest packet there is, bytes: base header and trailer.
const SMALLEST: usize = Cbh::LEN + metaroce_wire::crc::LEN;

rules! { "conventions.rs":
    "CONV-001" "a datagram ends with its packet, and what follows could be no second one" => Make::Rule(|s, model| sent(s, |cbh| {
        let excess = match fixed_len(cbh.opcode) {
            Some(len) => s.payload.len().saturating_sub(len),
            None => match (s.message(), model.connection(s)) {
                (Some((_, _, payload)), Some(connection)) => payload.len().saturating_sub(connection.payload_size() as usize),
                _ => return Found::Skip,
            },
        };
        holds(excess < SMALLEST, "one packet", || format!("{excess} bytes behind it"))
    }));
    "CONV-003" "packets go to the peer's port" => Make::Rule(|s, model| sent(s, |_| {
        equal("destination port", model.context.peer.port(), s.dst.port())
    }));
    "CONV-004" "PSN 0 follows ffffffff" => Make::Rule(|s, _| new_data(s, |cbh, data| match data.last_new {
        Some(last) if last.value() == u32::MAX => equal("PSN", 0, cbh.psn.value()),
        _ => Found::Skip,
    }));
    "CONV-005" "CumPSN passes the wrap" => Make::Rule(|s, _| {
        let Relation::AckSent(ack) = &s.relation else { return Found::Skip };
        // The place of PSN 0, when it comes soon after the ISN.
        let wrap = i64::from(ack.isn.value().wrapping_neg());
        let before = ack.previous.is_none_or(|previous| previous.cumulative < wrap);
        match ack.triggers.last() {
            Some(arrival) if wrap > 0 && before && arrival.cumulative >= wrap => {
                holds(ack.cumulative >= wrap, "a CumPSN of 00000000 or later", || format!("CumPSN {:08x}", s.cbh.map_or(0, |cbh| cbh.psn.value())))
            }
            _ => Found::Skip,
        }
    });
    "CONV-006" "data with a wrong CRC is not acknowledged" => Make::Monitor(|| Box::new(Silence::unacknowledged(SuspectClass::BadCrc)));
    "CONV-007" "nothing answers a wrong CRC" => Make::Monitor(|| Box::new(Silence::unanswered(SuspectClass::BadCrc)));
    "CONV-009" "nothing answers an unknown opcode" => Make::Monitor(|| Box::new(Silence::unanswered(SuspectClass::UnknownOpcode)));
    "CONV-010" "nothing answers another version" => Make::Monitor(|| Box::new(Silence::unanswered(SuspectClass::OtherVersion)));
    "CONV-011" "nothing answers a malformed packet" => Make::Monitor(|| Box::new(Silence::unanswered(SuspectClass::Malformed)));
    "CONV-012" "the counter of wrong CRCs keeps up" => Make::Monitor(|| Box::<CrcCounter>::default());
}

/// What must not follow a suspect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forbidden {
    /// Any packet in answer.
    Answer,
    /// An acknowledgment.
    Acknowledgment,
    /// A NAK.
    Nak,
}

/// Suspects that must stay without an answer. Each is an opportunity, once there was time to answer it.
pub(super) struct Silence {
    forbidden: Forbidden,
    concerns: fn(&Suspect) -> bool,
    class: Option<SuspectClass>,
    /// Time and frame of each.
    waiting: Vec<(u64, u64)>,
    answered: Vec<u64>,
    /// Frame of the latest packet that the judged side has surely taken in.
    taken: u64,
}

impl Silence {
    fn new(forbidden: Forbidden, class: Option<SuspectClass>) -> Self {
        Self {
            forbidden,
            concerns: |_| true,
            class,
            waiting: Vec::new(),
            answered: Vec::new(),
            taken: 0,
        }
    }

    /// Nothing at all answers suspects of the class.
    pub(super) fn unanswered(class: SuspectClass) -> Self {
        Self::new(Forbidden::Answer, Some(class))
    }

    /// Data of the class is not acknowledged.
    pub(super) fn unacknowledged(class: SuspectClass) -> Self {
        Self {
            concerns: |suspect| suspect.cbh.opcode.is_data(),
            ..Self::new(Forbidden::Acknowledgment, Some(class))
        }
    }

    /// No NAK answers suspects that are acknowledgments, NAKs, control or very short.
    pub(super) fn without_nak() -> Self {
        Self {
            concerns: |suspect| {
                let answerable = suspect.cbh.opcode.is_data() && suspect.len >= 36;
                suspect.class != SuspectClass::BadCrc && !answerable
            },
            ..Self::new(Forbidden::Nak, None)
        }
    }

    fn concerns(&self, suspect: &Suspect) -> bool {
        self.class.is_none_or(|class| class == suspect.class) && (self.concerns)(suspect)
    }
}

impl Monitor for Silence {
    fn sighting(&mut self, s: &Sighting<'_>, _: &Model, tally: &mut Tally) {
        if let Some(suspect) = &s.suspect
            && self.concerns(suspect)
            && self.waiting.len() < 1 << 16
        {
            self.waiting.push((s.time, s.frame));
        }
        // What comes later is taken in later: its acknowledgment ends the wait.
        if let Relation::AckSent(ack) = &s.relation
            && let Some(trigger) = ack.triggers.last()
        {
            self.taken = self.taken.max(trigger.frame);
        }
        let Some(opcode) = s.opcode() else { return };
        let fits = match self.forbidden {
            Forbidden::Answer => true,
            Forbidden::Acknowledgment => opcode.is_ack() || opcode == Opcode::PATH_PROBE_ACK,
            Forbidden::Nak => opcode == Opcode::NAK,
        };
        if !fits {
            return;
        }
        // That a packet is reported as arrived is an acknowledgment of it, but need not be an answer to it.
        let answers = s
            .answers
            .iter()
            .filter(|answer| self.forbidden == Forbidden::Acknowledgment || !answer.claimed);
        let mut concerned = answers.filter(|answer| self.concerns(&answer.suspect));
        if let Some(suspect) = concerned.next().map(|answer| answer.suspect) {
            self.answered.push(suspect.frame);
            let name = opcode.name().unwrap_or("a packet");
            tally.broken(
                vec![suspect.frame, s.frame],
                format!("no such answer to frame {}", suspect.frame),
                format!("{name} for PSN or transaction {}", suspect.cbh.psn),
            );
        }
    }

    fn finish(&mut self, model: &Model, tally: &mut Tally) {
        let patience = PATIENCE + model.ack_delay_ns() + model.context.allowance_ns;
        for (at, frame) in &self.waiting {
            let settled = at + patience <= model.now || *frame < self.taken;
            if settled && !self.answered.contains(frame) {
                tally.held();
            }
        }
    }
}

/// The counter `crc_errors` is not below the damaged packets that were delivered.
#[derive(Default)]
struct CrcCounter {
    damaged: Vec<(u64, u64)>,
}

impl Monitor for CrcCounter {
    fn sighting(&mut self, s: &Sighting<'_>, _: &Model, _: &mut Tally) {
        if !s.sent && !s.crc_ok && s.payload.len() >= SMALLEST {
            self.damaged.push((s.time, s.frame));
        }
    }

    fn event(&mut self, event: &Event, model: &Model, tally: &mut Tally) {
        let What::Counters { values } = &event.what else {
            return;
        };
        let sure = |(at, _): &&(u64, u64)| model.knows(*at, event.t_ns);
        let damaged = self.damaged.iter().filter(sure).count() as u64;
        if event.side != model.side() || damaged == 0 {
            return;
        }
        let Some(counted) = values.get("crc_errors").copied() else {
            tally.unsure(|| "the party reports no counter crc_errors".into());
            return;
        };
        if counted >= damaged {
            tally.held();
        } else {
            let frames = self.damaged.iter().take(4).map(|(_, frame)| *frame);
            let expected = format!("crc_errors at least {damaged}");
            tally.broken(frames.collect(), expected, format!("crc_errors {counted}"));
        }
    }
}
