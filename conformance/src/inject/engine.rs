//! Rules at work.

use std::net::{IpAddr, SocketAddr};

use metaroce_wire::crc;
use metaroce_wire::frame::{Ecn, Frame};

use super::facts::{Facts, Memory};
use super::rule::{Action, Match, Rule};
use crate::evidence::RuleCount;
use crate::trace::{Note, Side};

/// A packet as it leaves the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Besides the delay of the link, ns.
    pub delay_ns: u64,
    /// Congestion mark.
    pub ecn: Ecn,
    /// UDP payload.
    pub bytes: Vec<u8>,
    /// Where it comes from, as its sender and the rules had it.
    pub src: SocketAddr,
    /// Where its sender sent it.
    pub dst: SocketAddr,
    /// Who sent it.
    pub from: Side,
    /// Whether it leaves the link from the address of [`stranger`], for which the link makes its trailer right.
    pub stranger: bool,
}

/// An address that belongs to no party of a test in which `ip` takes part: 100 further in its last byte.
pub fn stranger(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            IpAddr::from([a, b, c, d.wrapping_add(100)])
        }
        IpAddr::V6(ip) => {
            let mut octets = ip.octets();
            octets[15] = octets[15].wrapping_add(100);
            IpAddr::from(octets)
        }
    }
}

/// What becomes of a packet, and of others that were waiting for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// What leaves the link, in this order where the delays are equal.
    pub deliveries: Vec<Delivery>,
    /// Which rules acted on the packet.
    pub notes: Vec<Note>,
}

/// A packet that waits inside.
struct Held {
    rule: usize,
    path: u8,
    release: Release,
    until: u64,
    delivery: Delivery,
}

/// What lets a packet go before its time.
#[derive(Clone)]
enum Release {
    /// So many packets of its path and direction that overtake it.
    Behind(u16),
    /// A packet of this description.
    Packet(Match),
}

/// What the rules make of one packet.
struct Fate {
    lost: bool,
    delivery: Delivery,
    copies: Vec<u64>,
    hold: Option<Held>,
    /// The rules that acted, in order.
    acted: Vec<usize>,
}

/// The rules of a scenario at work.
pub struct Injector {
    rules: Vec<Rule>,
    fired: Vec<u64>,
    /// Of these, how often the packet came without what it was to wait for.
    vain: Vec<u64>,
    seed: u64,
    memory: Memory,
    held: Vec<Held>,
}

impl Injector {
    /// An injector that has seen nothing. Every choice of chance depends on `seed`.
    pub fn new(rules: Vec<Rule>, seed: u64) -> Self {
        Self {
            fired: vec![0; rules.len()],
            vain: vec![0; rules.len()],
            rules,
            seed,
            memory: Memory::default(),
            held: Vec::new(),
        }
    }

    /// Decides on a packet that enters the link. All matching rules act in their order, until one loses the packet; what
    /// cannot be read as a packet passes unchanged.
    pub fn decide(&mut self, now: u64, from: Side, frame: &Frame<'_>) -> Decision {
        let mut fate = Fate {
            lost: false,
            delivery: Delivery {
                delay_ns: 0,
                ecn: frame.ecn,
                bytes: frame.payload.to_vec(),
                src: frame.src,
                dst: frame.dst,
                from,
                stranger: false,
            },
            copies: Vec::new(),
            hold: None,
            acted: Vec::new(),
        };
        let facts = self.memory.facts(from, frame);
        if let Some(facts) = &facts {
            for index in 0..self.rules.len() {
                if !fate.lost && self.chosen(index, facts) {
                    self.act(index, now, facts, frame, &mut fate);
                }
            }
        }
        let notes = fate.acted.iter().map(|&index| Note {
            rule: self.rules[index].id.clone(),
            action: self.rules[index].action.name().into(),
        });
        let notes = notes.collect();
        let mut deliveries = Vec::new();
        let overtakes = !fate.lost && fate.hold.is_none() && fate.delivery.delay_ns == 0;
        if !fate.lost {
            let copy = |after: &u64| Delivery {
                delay_ns: fate.delivery.delay_ns + after,
                ..fate.delivery.clone()
            };
            let copies: Vec<Delivery> = fate.copies.iter().map(copy).collect();
            if fate.hold.is_none() {
                deliveries.push(fate.delivery);
            }
            deliveries.extend(copies);
        }
        if let Some(facts) = &facts {
            self.release(facts, overtakes, &mut deliveries);
        }
        self.held.extend(fate.hold);
        Decision { deliveries, notes }
    }

    /// Whether the rule is for this packet, this time.
    fn chosen(&self, index: usize, facts: &Facts) -> bool {
        let rule = &self.rules[index];
        rule.times.is_none_or(|times| self.fired[index] < times)
            && facts.fit(&rule.matching)
            && rule
                .chance
                .is_none_or(|chance| facts.draw(self.seed, &rule.id) < chance.probability())
    }

    /// Lets a rule act. A rule that would change nothing has not acted.
    fn act(&mut self, index: usize, now: u64, facts: &Facts, frame: &Frame<'_>, fate: &mut Fate) {
        let delivery = &mut fate.delivery;
        let mut hold = None;
        match &self.rules[index].action {
            Action::Drop => fate.lost = true,
            Action::Delay(by) => delivery.delay_ns += by.nanos(),
            Action::Duplicate(duplicate) => fate.copies.push(duplicate.after.nanos()),
            Action::Reorder(how) => hold = Some((Release::Behind(how.behind), how.at_most)),
            Action::HoldUntil(how) => {
                hold = Some((Release::Packet(how.packet.clone()), how.at_most));
            }
            Action::MarkCe if matches!(delivery.ecn, Ecn::NotEct | Ecn::Ce) => return,
            Action::MarkCe => delivery.ecn = Ecn::Ce,
            Action::ClearEcn if delivery.ecn == Ecn::NotEct => return,
            Action::ClearEcn => delivery.ecn = Ecn::NotEct,
            Action::Corrupt(corrupt) => {
                let len = delivery.bytes.len();
                let Some(at) = corrupt.byte.checked_rem(len) else {
                    return;
                };
                delivery.bytes[at] ^= 1 << (corrupt.bit % 8);
                if corrupt.reseal {
                    // A packet too short for a trailer stays as it is.
                    let _too_short = crc::seal(&frame.pseudo_header(), &mut delivery.bytes);
                }
            }
            Action::Truncate(size) => {
                let len = usize::try_from(size.bytes()).unwrap_or(usize::MAX);
                if len >= delivery.bytes.len() {
                    return;
                }
                delivery.bytes.truncate(len);
            }
            Action::SourcePort(port) if port.get() == delivery.src.port() => return,
            Action::SourcePort(port) => delivery.src.set_port(port.get()),
            Action::Stranger if delivery.stranger => return,
            Action::Stranger => delivery.stranger = true,
        }
        if let Some((release, at_most)) = hold {
            if fate.hold.is_some() {
                // It waits already; two waits would not add up to anything that can be told.
                return;
            }
            fate.hold = Some(Held {
                rule: index,
                path: facts.cbh.path,
                release,
                until: now + at_most.nanos(),
                delivery: fate.delivery.clone(),
            });
        } else if let Some(held) = &mut fate.hold {
            held.delivery = fate.delivery.clone();
        }
        if fate.lost {
            self.retract(fate);
        }
        self.fired[index] += 1;
        fate.acted.push(index);
    }

    /// A packet that is lost was neither doubled nor held.
    fn retract(&mut self, fate: &mut Fate) {
        fate.copies.clear();
        fate.hold = None;
        let (rules, fired) = (&self.rules, &mut self.fired);
        fate.acted.retain(|&index| {
            let undone = matches!(
                rules[index].action,
                Action::Duplicate(_) | Action::Reorder(_) | Action::HoldUntil(_)
            );
            fired[index] -= u64::from(undone);
            !undone
        });
    }

    /// Lets go of the packets that were waiting for this one.
    fn release(&mut self, facts: &Facts, overtakes: bool, deliveries: &mut Vec<Delivery>) {
        self.held.retain_mut(|held| {
            let over = match &mut held.release {
                Release::Behind(left) => {
                    let of_path = held.delivery.from == facts.from && held.path == facts.cbh.path;
                    if overtakes && of_path && facts.cbh.opcode.is_data() {
                        *left = left.saturating_sub(1);
                    }
                    *left == 0
                }
                Release::Packet(wanted) => facts.fit(wanted),
            };
            if over {
                deliveries.push(held.delivery.clone());
            }
            !over
        });
    }

    /// When [`Self::expired`] is next wanted, ns.
    pub fn deadline(&self) -> Option<u64> {
        self.held.iter().map(|held| held.until).min()
    }

    /// Held packets whose time is over although what they waited for has not come.
    pub fn expired(&mut self, now: u64) -> Vec<Delivery> {
        let mut out = Vec::new();
        let vain = &mut self.vain;
        self.held.retain(|held| {
            let over = held.until <= now;
            if over {
                vain[held.rule] += 1;
                out.push(held.delivery.clone());
            }
            !over
        });
        out
    }

    /// Packets held inside, from A and from B.
    pub fn held(&self) -> [u64; 2] {
        Side::BOTH.map(|side| {
            let of_side = |held: &&Held| held.delivery.from == side;
            self.held.iter().filter(of_side).count() as u64
        })
    }

    /// How often each rule has acted. A packet that was let go only because its time was over has not been the stimulus
    /// that it should be: so many more are needed.
    pub fn counts(&self) -> Vec<RuleCount> {
        let counters = self.fired.iter().zip(&self.vain);
        let count = |(rule, (fired, vain)): (&Rule, (&u64, &u64))| RuleCount {
            rule: rule.id.clone(),
            fired: *fired,
            at_least: rule.needed() + vain,
        };
        self.rules.iter().zip(counters).map(count).collect()
    }
}
