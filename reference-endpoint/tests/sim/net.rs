//! What lies between the endpoints: per direction, plane and source port.

use std::collections::BTreeMap;

use metaroce_wire::metaroce::Opcode;

use crate::chance::{Chance, mix};
use metaroce_endpoint::core::Ecn;

/// How the network behaves. Chances are in 1000.
#[derive(Debug, Clone, Default)]
pub struct LinkPlan {
    /// Shortest time on the way, and what chance adds to it, ns. A source port stays first-in first-out.
    pub delay: u64,
    pub jitter: u64,
    /// Packets that one to three later ones of their port may overtake.
    pub reorder: u32,
    /// Losses of data, acknowledgments, control.
    pub loss: [u32; 3],
    /// Chance that a burst of losses begins, and its longest length in packets.
    pub burst: (u32, u64),
    pub twice: u32,
    /// Packets of which a copy comes much later, up to 3 s.
    pub late: u32,
    pub marked: u32,
    /// Backlog from which on packets are marked, ns.
    pub mark_from: Option<u64>,
    /// Source ports that lose their marks.
    pub bleached: u32,
    /// Packets in which one bit turns, and that are cut.
    pub corrupt: u32,
    pub cut: u32,
    /// Packets that garbage follows, from the same source.
    pub garbage: u32,
    /// Bits per second, and the longest backlog, ns.
    pub rate: Option<(u64, u64)>,
    pub outages: Vec<Outage>,
    /// What becomes of single packets, by the number of the packet.
    pub chosen: Option<Chosen>,
    /// From here on nothing is lost or changed, ns.
    pub heal_at: u64,
}

/// Of 64 packets from the so many-th on, those with a bit set are lost, or held up for a while.
#[derive(Debug, Clone, Copy)]
pub struct Chosen {
    pub first: u64,
    pub bits: u64,
    /// How long, ns; 0 for ever.
    pub held: u64,
}

/// Nothing passes for a while.
#[derive(Debug, Clone)]
pub struct Outage {
    pub from: u64,
    pub until: u64,
    pub of: Dark,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dark {
    All,
    /// What this end sends.
    From(usize),
    /// One source port of an end.
    Port(usize, u16),
    Plane(u8),
}

pub struct Net {
    pub plan: LinkPlan,
    seed: u64,
    chance: Chance,
    latest: BTreeMap<(usize, usize, u8, u16), u64>,
    busy: BTreeMap<(usize, usize, u8), u64>,
    burst: BTreeMap<(usize, usize), u64>,
    pub lost: u64,
    carried: u64,
}

/// A packet on its way.
pub struct Sent<'a> {
    pub from: usize,
    pub to: usize,
    pub plane: u8,
    pub port: u16,
    pub ecn: Ecn,
    pub bytes: &'a [u8],
}

impl Net {
    pub fn new(plan: LinkPlan, seed: u64) -> Self {
        Self {
            plan,
            seed,
            chance: Chance::new(seed, 1),
            latest: BTreeMap::new(),
            busy: BTreeMap::new(),
            burst: BTreeMap::new(),
            lost: 0,
            carried: 0,
        }
    }

    /// When and how a packet arrives, once or twice or never.
    pub fn carry(&mut self, now: u64, sent: &Sent<'_>) -> Vec<(u64, Ecn, Vec<u8>)> {
        let ill = now < self.plan.heal_at;
        let number = self.carried;
        self.carried += 1;
        let bit = |c: &Chosen| {
            (c.first..c.first + 64).contains(&number) && c.bits >> (number - c.first) & 1 == 1
        };
        if let Some(chosen) = self.plan.chosen.filter(bit) {
            self.lost += u64::from(chosen.held == 0);
            let late = (
                now + self.plan.delay + chosen.held,
                sent.ecn,
                sent.bytes.to_vec(),
            );
            return if chosen.held > 0 {
                vec![late]
            } else {
                Vec::new()
            };
        }
        if self.is_dark(now, sent) || (ill && self.is_lost(sent)) {
            self.lost += 1;
            return Vec::new();
        }
        let Some(left) = self.leave(now, sent) else {
            self.lost += 1;
            return Vec::new();
        };
        let mut ecn = sent.ecn;
        let marks = self.plan.mark_from.is_some_and(|from| left - now > from);
        if ill && ecn != Ecn::NotEct {
            if marks || self.chance.in_thousand(self.plan.marked) {
                ecn = Ecn::Ce;
            }
            let route = mix(self.seed ^ u64::from(sent.port) << 8 ^ sent.from as u64);
            if route % 1000 < u64::from(self.plan.bleached) {
                ecn = Ecn::NotEct;
            }
        }
        let late = ill && self.chance.in_thousand(self.plan.late);
        let late = late.then(|| {
            (
                left + self.chance.below(3_000_000_000),
                ecn,
                sent.bytes.to_vec(),
            )
        });
        let garbage = ill && self.chance.in_thousand(self.plan.garbage);
        let garbage = garbage.then(|| (left + self.plan.delay, ecn, self.garbage(sent.bytes)));
        let copies = 1 + usize::from(ill && self.chance.in_thousand(self.plan.twice));
        (0..copies)
            .map(|_| {
                (
                    self.arrival(left, sent, ill),
                    ecn,
                    self.damaged(sent.bytes, ill),
                )
            })
            .chain(late)
            .chain(garbage)
            .collect()
    }

    fn is_dark(&self, now: u64, sent: &Sent<'_>) -> bool {
        self.plan.outages.iter().any(|outage| {
            (outage.from..outage.until).contains(&now)
                && match outage.of {
                    Dark::All => true,
                    Dark::From(end) => end == sent.from,
                    Dark::Port(end, port) => (end, port) == (sent.from, sent.port),
                    Dark::Plane(plane) => plane == sent.plane,
                }
        })
    }

    fn is_lost(&mut self, sent: &Sent<'_>) -> bool {
        let opcode = Opcode(sent.bytes[1]);
        let kind = if opcode.is_data() {
            0
        } else if opcode.is_ack() {
            1
        } else {
            2
        };
        // Bursts leave control alone: its requests have eight attempts and no more.
        if kind < 2 {
            let left = self.burst.entry((sent.from, sent.to)).or_default();
            if *left > 0 {
                *left -= 1;
                return true;
            }
            if self.chance.in_thousand(self.plan.burst.0) {
                *left = self.chance.below(self.plan.burst.1);
                return true;
            }
        }
        self.chance.in_thousand(self.plan.loss[kind])
    }

    /// When the packet has left the queue; none if the queue is full.
    fn leave(&mut self, now: u64, sent: &Sent<'_>) -> Option<u64> {
        let Some((rate, backlog)) = self.plan.rate else {
            return Some(now);
        };
        let busy = self
            .busy
            .entry((sent.from, sent.to, sent.plane))
            .or_default();
        let start = now.max(*busy);
        if start - now > backlog {
            return None;
        }
        *busy = start + sent.bytes.len() as u64 * 8 * 1_000_000_000 / rate;
        Some(*busy)
    }

    fn arrival(&mut self, left: u64, sent: &Sent<'_>, ill: bool) -> u64 {
        let at = left + self.plan.delay + self.chance.below(self.plan.jitter + 1);
        let latest = self
            .latest
            .entry((sent.from, sent.to, sent.plane, sent.port))
            .or_default();
        let at = at.max(*latest);
        if ill && self.chance.in_thousand(self.plan.reorder) {
            return at + self.chance.between(1, 3) * 12_000;
        }
        *latest = at;
        at
    }

    /// Nothing that an endpoint has sent: noise, or a packet with some noise in it.
    fn garbage(&mut self, like: &[u8]) -> Vec<u8> {
        let mut bytes = like.to_vec();
        let noise = if self.chance.below(2) == 0 {
            bytes.len() as u64
        } else {
            1 + self.chance.below(8)
        };
        for _ in 0..noise {
            let at = self.chance.below(bytes.len() as u64) as usize;
            bytes[at] = bytes[at].wrapping_add(self.chance.between(1, 255) as u8);
        }
        if self.chance.below(2) == 0 {
            bytes.truncate(self.chance.below(60) as usize);
        }
        bytes
    }

    fn damaged(&mut self, bytes: &[u8], ill: bool) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        if ill && self.chance.in_thousand(self.plan.corrupt) {
            let bit = self.chance.below(bytes.len() as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        if ill && self.chance.in_thousand(self.plan.cut) {
            bytes.truncate(self.chance.below(bytes.len() as u64) as usize);
        }
        bytes
    }
}
