//! What rules go by: the identity of a packet.

use std::collections::{BTreeMap, HashMap, VecDeque};

use metaroce_wire::frame::Frame;
use metaroce_wire::metaroce::{Body, Cbh, Flags, Msgh, Opcode, parse, parse_lax};
use metaroce_wire::serial::{Msn, Psn};

use super::rule::{Class, Match};
use crate::trace::Side;

/// Packets whose transmissions are remembered, at most.
const REMEMBERED: usize = 1 << 17;

/// One packet, as rules see it.
pub(super) struct Facts {
    /// Who sent it.
    pub(super) from: Side,
    /// Its base header.
    pub(super) cbh: Cbh,
    /// Its message header, where it has one.
    msgh: Option<Msgh>,
    /// Number of its message from the first of the stream, where that is known.
    msn: Option<u32>,
    /// Its PSN from the first of its path, the acknowledged one for an acknowledgment, where that is known.
    psn: Option<u32>,
    /// Which time it passes, from 1.
    nth: u32,
}

impl Facts {
    /// Whether the packet is one of those that `m` describes.
    pub(super) fn fit(&self, m: &Match) -> bool {
        let opcode = self.cbh.opcode;
        let of_class = |class| match class {
            Class::Data => opcode.is_data(),
            Class::Ack => opcode.is_ack(),
            Class::Nak => opcode == Opcode::NAK,
            Class::Control => opcode.is_control(),
            Class::Any => true,
        };
        let data_psn = self.psn.filter(|_| opcode.is_data());
        let stream = self.msgh.map(|msgh| msgh.stream);
        let offset = self.msgh.map(|msgh| msgh.offset);
        let path = u32::from(self.cbh.path);
        m.from.is_none_or(|side| side == self.from)
            && m.class.as_ref().is_none_or(|classes| classes.any(of_class))
            && m.opcode
                .as_deref()
                .is_none_or(|name| opcode.name() == Some(name))
            && m.path.as_ref().is_none_or(|numbers| numbers.hold(path))
            && m.psn
                .as_ref()
                .is_none_or(|numbers| data_psn.is_some_and(|psn| numbers.hold(psn)))
            && m.stream.is_none_or(|wanted| stream == Some(wanted))
            && m.msn
                .as_ref()
                .is_none_or(|numbers| self.msn.is_some_and(|msn| numbers.hold(msn)))
            && m.offset
                .as_ref()
                .is_none_or(|numbers| offset.is_some_and(|offset| numbers.hold(offset)))
            && m.transmission.is_none_or(|wanted| wanted == self.nth)
            && m.rtx
                .is_none_or(|wanted| wanted == self.cbh.flags.has(Flags::RTX))
    }

    /// A number from 0 to 1 that depends on the seed, the rule's name and the identity of the packet alone. First PSNs
    /// are chosen freely by the parties, so PSNs count from them.
    pub(super) fn draw(&self, seed: u64, rule: &str) -> f64 {
        let number = self.psn.unwrap_or(self.cbh.psn.value());
        let identity = [
            self.from.index() as u64,
            u64::from(self.cbh.opcode.0),
            u64::from(self.cbh.path),
            u64::from(number),
            u64::from(self.nth),
        ];
        let name = rule
            .bytes()
            .fold(seed, |hash, byte| mix(hash ^ u64::from(byte)));
        let drawn = identity.iter().fold(name, |hash, part| mix(hash ^ part));
        // 53 bits fill a double exactly.
        (drawn >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Spreads the bits of a number (the finaliser of SplitMix64).
fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Identity of a packet among all that pass: who sent it, connection, opcode, path, PSN or transaction.
type Identity = (Side, u32, u8, u8, u32);

/// What has been learned from the packets so far.
#[derive(Default)]
pub(super) struct Memory {
    isn: [Option<Psn>; 2],
    first_msn: BTreeMap<u16, Msn>,
    passed: HashMap<Identity, u32>,
    order: VecDeque<Identity>,
}

impl Memory {
    /// Looks at a packet that enters the link. None when it has no base header, so that no rule can name it.
    pub(super) fn facts(&mut self, from: Side, frame: &Frame<'_>) -> Option<Facts> {
        let lax = parse_lax(frame.payload);
        let cbh = lax.cbh?;
        self.learn(from, cbh.opcode, frame);
        let msgh = lax.body.as_ref().and_then(|body| body.msgh().copied());
        // An acknowledgment speaks of the other direction's packets.
        let direction = if cbh.opcode.is_data() {
            Some(from)
        } else {
            Some(from.other()).filter(|_| cbh.opcode.is_ack())
        };
        let isn = direction.and_then(|side| self.isn[side.index()]);
        let msn = msgh.and_then(|msgh| {
            let first = self.first_msn.get(&msgh.stream)?;
            Some(msgh.msn.distance_from(*first))
        });
        Some(Facts {
            from,
            cbh,
            msgh,
            msn,
            psn: isn.map(|isn| cbh.psn.distance_from(isn)),
            nth: self.count(from, &cbh),
        })
    }

    /// First numbers stand in the set-up; only a sound packet is believed.
    fn learn(&mut self, from: Side, opcode: Opcode, frame: &Frame<'_>) {
        if !matches!(opcode, Opcode::OPEN | Opcode::ACCEPT | Opcode::STREAM_OPEN) {
            return;
        }
        match parse(frame.payload, &frame.pseudo_header()).map(|packet| packet.body) {
            Ok(Body::Open(open)) => self.isn[from.index()] = Some(open.params.isn),
            Ok(Body::Accept(accept)) => self.isn[from.index()] = Some(accept.params.isn),
            Ok(Body::StreamOpen(open)) => {
                self.first_msn.insert(open.stream, open.first_msn);
            }
            _ => {}
        }
    }

    fn count(&mut self, from: Side, cbh: &Cbh) -> u32 {
        let psn = cbh.psn.value();
        let identity = (from, cbh.dcid.value(), cbh.opcode.0, cbh.path, psn);
        if let Some(nth) = self.passed.get_mut(&identity) {
            *nth += 1;
            return *nth;
        }
        if self.order.len() >= REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.passed.remove(&oldest);
        }
        self.order.push_back(identity);
        self.passed.insert(identity, 1);
        1
    }
}
