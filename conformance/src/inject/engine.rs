//! Rules at work.

use std::collections::BTreeMap;

use metaroce_wire::crc;
use metaroce_wire::frame::{Ecn, Frame};
use metaroce_wire::metaroce::{Body, Cbh, Flags, Opcode, parse_lax};
use metaroce_wire::serial::Psn;

use super::rule::{Action, Class, Match, Rule};
use crate::evidence::RuleCount;
use crate::trace::{Note, Side};

/// Packets whose transmissions are remembered per side, path and kind, at most.
const REMEMBERED: usize = 1 << 16;

/// A packet as it leaves the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Besides the delay of the link, ns.
    pub delay_ns: u64,
    /// Congestion mark.
    pub ecn: Ecn,
    /// UDP payload.
    pub bytes: Vec<u8>,
    /// UDP source port.
    pub src_port: u16,
    /// Who sent it.
    pub from: Side,
}

/// What becomes of a packet, and of others that were waiting for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// What leaves the link, in this order where the delays are equal.
    pub deliveries: Vec<Delivery>,
    /// Which rules acted on the packet.
    pub notes: Vec<Note>,
}

struct Held {
    path: u8,
    behind: u16,
    until: u64,
    delivery: Delivery,
}

/// Identity of a packet: who sent it, its opcode, its path, its PSN or transaction.
type Identity = (usize, u8, u8, u32);

/// The rules of a scenario at work.
pub struct Injector {
    rules: Vec<Rule>,
    fired: Vec<u64>,
    seed: u64,
    isn: [Option<Psn>; 2],
    passed: BTreeMap<Identity, u32>,
    held: Vec<Held>,
}

impl Injector {
    /// An injector that has seen nothing.
    pub fn new(rules: Vec<Rule>, seed: u64) -> Self {
        let fired = vec![0; rules.len()];
        Self {
            rules,
            fired,
            seed,
            isn: [None; 2],
            passed: BTreeMap::new(),
            held: Vec::new(),
        }
    }

    /// Decides on a packet that enters the link.
    pub fn decide(&mut self, now: u64, from: Side, frame: &Frame<'_>) -> Decision {
        let mut notes = Vec::new();
        let mut delivery = Some(Delivery {
            delay_ns: 0,
            ecn: frame.ecn,
            bytes: frame.payload.to_vec(),
            src_port: frame.src.port(),
            from,
        });
        let mut copy_after = None;
        let mut reorder = None;
        let lax = parse_lax(frame.payload);
        let cbh = lax.cbh;
        if let Some(cbh) = &cbh {
            self.learn(from, lax.body.as_ref());
            let nth = self.count(from, cbh);
            for index in 0..self.rules.len() {
                if delivery.is_none() || !self.acts(index, from, cbh, lax.body.as_ref(), nth) {
                    continue;
                }
                let action = self.rules[index].action;
                if matches!(action, Action::MarkCe) && frame.ecn == Ecn::NotEct {
                    continue;
                }
                self.fired[index] += 1;
                notes.push(Note {
                    rule: self.rules[index].id.clone(),
                    action: action.name().into(),
                });
                match (action, &mut delivery) {
                    (Action::Drop, _) | (_, None) => delivery = None,
                    (Action::Delay(by), Some(delivery)) => delivery.delay_ns += by.nanos(),
                    (Action::Duplicate(duplicate), _) => copy_after = Some(duplicate.after.nanos()),
                    (Action::Reorder(how), _) => reorder = Some(how),
                    (Action::MarkCe, Some(delivery)) => delivery.ecn = Ecn::Ce,
                    (Action::ClearEcn, Some(delivery)) => delivery.ecn = Ecn::NotEct,
                    (Action::Corrupt(corrupt), Some(delivery)) => {
                        let len = delivery.bytes.len().max(1);
                        if let Some(byte) = delivery.bytes.get_mut(corrupt.byte % len) {
                            *byte ^= 1 << (corrupt.bit % 8);
                        }
                        if corrupt.reseal {
                            // A packet too short for a trailer stays as it is.
                            let _too_short = crc::seal(&frame.pseudo_header(), &mut delivery.bytes);
                        }
                    }
                }
            }
        }
        let mut deliveries = Vec::new();
        if let Some(delivery) = delivery {
            if let Some(after) = copy_after {
                let copy = Delivery {
                    delay_ns: delivery.delay_ns + after,
                    ..delivery.clone()
                };
                deliveries.push(copy);
            }
            match (reorder, cbh) {
                (Some(how), Some(cbh)) => {
                    let until = now + how.at_most.nanos();
                    self.held.push(Held {
                        path: cbh.path,
                        behind: how.behind,
                        until,
                        delivery,
                    });
                }
                _ => deliveries.insert(0, delivery),
            }
        }
        if let Some(cbh) = cbh.filter(|cbh| cbh.opcode.is_data() && reorder.is_none()) {
            self.overtake(from, cbh.path, &mut deliveries);
        }
        Decision { deliveries, notes }
    }

    /// Lets go of held packets that a packet of their path has now overtaken often enough.
    fn overtake(&mut self, from: Side, path: u8, deliveries: &mut Vec<Delivery>) {
        self.held.retain_mut(|held| {
            if held.delivery.from != from || held.path != path {
                return true;
            }
            held.behind -= 1;
            if held.behind == 0 {
                deliveries.push(held.delivery.clone());
            }
            held.behind > 0
        });
    }

    /// When [`Self::expired`] is next wanted, ns.
    pub fn deadline(&self) -> Option<u64> {
        self.held.iter().map(|held| held.until).min()
    }

    /// Held packets whose time is over although nothing has overtaken them.
    pub fn expired(&mut self, now: u64) -> Vec<Delivery> {
        let mut out = Vec::new();
        self.held.retain(|held| {
            let over = held.until <= now;
            if over {
                out.push(held.delivery.clone());
            }
            !over
        });
        out
    }

    /// Packets held inside, from A and from B.
    pub fn held(&self) -> [u64; 2] {
        Side::BOTH.map(|side| {
            self.held
                .iter()
                .filter(|held| held.delivery.from == side)
                .count() as u64
        })
    }

    /// How often each rule has acted.
    pub fn counts(&self) -> Vec<RuleCount> {
        let count = |(rule, fired): (&Rule, &u64)| RuleCount {
            rule: rule.id.clone(),
            fired: *fired,
            at_least: rule.needed(),
        };
        self.rules.iter().zip(&self.fired).map(count).collect()
    }

    /// The first PSN of a direction stands in the set-up.
    fn learn(&mut self, from: Side, body: Option<&Body<'_>>) {
        match body {
            Some(Body::Open(open)) => self.isn[from.index()] = Some(open.params.isn),
            Some(Body::Accept(accept)) => self.isn[from.index()] = Some(accept.params.isn),
            _ => {}
        }
    }

    fn count(&mut self, from: Side, cbh: &Cbh) -> u32 {
        if self.passed.len() >= REMEMBERED {
            // The oldest of a path have the lowest PSNs, but for a wrap; whatever is forgotten counts from 1 again.
            let half: Vec<Identity> = self.passed.keys().take(REMEMBERED / 2).copied().collect();
            for identity in half {
                self.passed.remove(&identity);
            }
        }
        let nth = self
            .passed
            .entry((from.index(), cbh.opcode.0, cbh.path, cbh.psn.value()))
            .or_default();
        *nth += 1;
        *nth
    }

    fn acts(&self, index: usize, from: Side, cbh: &Cbh, body: Option<&Body<'_>>, nth: u32) -> bool {
        let rule = &self.rules[index];
        if rule.times.is_some_and(|times| self.fired[index] >= times)
            || !self.fits(&rule.matching, from, cbh, body, nth)
        {
            return false;
        }
        let Some(chance) = rule.chance else {
            return true;
        };
        let identity = [
            from.index() as u64,
            u64::from(cbh.opcode.0),
            u64::from(cbh.path),
            u64::from(cbh.psn.value()),
            u64::from(nth),
        ];
        let name = rule
            .id
            .bytes()
            .fold(self.seed, |hash, byte| mix(hash ^ u64::from(byte)));
        let drawn = identity.iter().fold(name, |hash, part| mix(hash ^ part));
        // 53 bits fill a double exactly.
        ((drawn >> 11) as f64 / (1u64 << 53) as f64) < chance.probability()
    }

    fn fits(&self, m: &Match, from: Side, cbh: &Cbh, body: Option<&Body<'_>>, nth: u32) -> bool {
        let opcode = cbh.opcode;
        let class_fits = |class| match class {
            Class::Data => opcode.is_data(),
            Class::Ack => opcode.is_ack(),
            Class::Nak => opcode == Opcode::NAK,
            Class::Control => opcode.is_control(),
        };
        let psn_fits = |numbers: super::rule::Numbers| {
            let relative = self.isn[from.index()].map(|isn| cbh.psn.distance_from(isn));
            opcode.is_data() && relative.is_some_and(|psn| numbers.hold(psn))
        };
        let stream = match body {
            Some(Body::Send(send)) => Some(send.msgh.stream),
            Some(Body::Write(write)) => Some(write.msgh.stream),
            _ => None,
        };
        m.from.is_none_or(|side| side == from)
            && m.class.is_none_or(class_fits)
            && m.opcode
                .as_deref()
                .is_none_or(|name| opcode.name() == Some(name))
            && m.path
                .is_none_or(|numbers| numbers.hold(u32::from(cbh.path)))
            && m.psn.is_none_or(psn_fits)
            && m.stream.is_none_or(|wanted| stream == Some(wanted))
            && m.transmission.is_none_or(|wanted| wanted == nth)
            && m.rtx
                .is_none_or(|wanted| wanted == cbh.flags.has(Flags::RTX))
    }
}

/// Spreads the bits of a number (the finaliser of SplitMix64).
fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
