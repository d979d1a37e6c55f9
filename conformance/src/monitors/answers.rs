//! Rules of the form "B follows A in time": answers to requests, acknowledgments that are due.

use std::collections::BTreeMap;

use metaroce_wire::metaroce::{Body, Flags, MFlags, Opcode, RejectReason};
use metaroce_wire::serial::Psn;

use super::{Context, Monitor, Tally, entries};
use crate::model::{Arrival, Sighting};

/// "At once" means within this, ns, besides the allowance: in simulated time nothing takes time but the link.
const AT_ONCE: u64 = 100_000;

type Key = (u8, u32);

/// A rule that what `asks` names is answered by what `answers` names, in time.
struct Answer {
    asks: fn(&Sighting<'_>, &Context<'_>) -> Option<Key>,
    /// The keys that a packet answers.
    answers: fn(&Sighting<'_>, &Context<'_>, Key) -> bool,
    within: fn(&Context<'_>) -> u64,
    open: BTreeMap<Key, (u64, u64)>,
}

impl Answer {
    fn new(
        asks: fn(&Sighting<'_>, &Context<'_>) -> Option<Key>,
        answers: fn(&Sighting<'_>, &Context<'_>, Key) -> bool,
    ) -> Self {
        Self {
            asks,
            answers,
            within: |_| AT_ONCE,
            open: BTreeMap::new(),
        }
    }

    fn within(self, within: fn(&Context<'_>) -> u64) -> Self {
        Self { within, ..self }
    }
}

impl Monitor for Answer {
    fn sighting(&mut self, s: &Sighting<'_>, c: &Context<'_>, tally: &mut Tally) {
        let due = (self.within)(c) + c.allowance();
        if s.sent {
            let answered: Vec<Key> = self
                .open
                .keys()
                .copied()
                .filter(|key| (self.answers)(s, c, *key))
                .collect();
            for key in answered {
                let Some((at, frame)) = self.open.remove(&key) else {
                    continue;
                };
                if s.time <= at + due {
                    tally.held();
                } else {
                    tally.broken(
                        vec![frame, s.frame],
                        format!("an answer within {due} ns"),
                        format!("after {} ns", s.time - at),
                    );
                }
            }
        } else if let Some(key) = (self.asks)(s, c) {
            self.open.entry(key).or_insert((s.time, s.frame));
        }
    }

    fn end(&mut self, time: u64, c: &Context<'_>, tally: &mut Tally) {
        let due = (self.within)(c) + c.allowance();
        for (at, frame) in std::mem::take(&mut self.open).into_values() {
            // What came too shortly before the end may still have been answered.
            if time > at + due {
                tally.broken(vec![frame], format!("an answer within {due} ns"), "none");
            }
        }
    }
}

entries! { "answers":
    "CONN-005" => Answer::new(
        |s, _| match s.lax.body {
            Some(Body::Open(open)) if s.is_sound() && offers_this(&open.params) => transaction(s),
            _ => None,
        },
        |s, _, key| s.opcode() == Some(Opcode::ACCEPT) && transaction(s) == Some(key),
    ),
    "CONN-009" => Answer::new(
        |s, _| match s.lax.body {
            Some(Body::Open(open)) if s.is_sound() && open.params.ver_min > 1 => transaction(s),
            _ => None,
        },
        |s, _, key| rejects(s, RejectReason::VERSION, key),
    ),
    "CONN-010" => Answer::new(
        |s, _| match s.lax.body {
            Some(Body::Open(open)) if s.is_sound() && open.params.ver_min <= 1 && open.params.service_id != 1 => transaction(s),
            _ => None,
        },
        |s, _, key| rejects(s, RejectReason::NO_SERVICE, key),
    ),
    "CONN-017" => Answer::new(
        |s, c| match s.lax.body {
            Some(Body::Confirm(_)) if s.is_sound() && c.declaration.party(c.side.other()).kind == "tester" && !c.view.confirmed && is_flipped(s) => transaction(s),
            _ => None,
        },
        |s, _, key| rejects(s, RejectReason::BAD_COOKIE, key),
    ),
    "CONN-018" => Answer::new(
        |s, c| (s.is_sound() && s.opcode() == Some(Opcode::CONFIRM) && c.view.confirmed).then(|| transaction(s)).flatten(),
        |s, _, key| s.opcode() == Some(Opcode::CONFIRM_ACK) && transaction(s) == Some(key),
    ),
    "CONN-026" => Answer::new(
        |s, _| (s.is_sound() && s.opcode() == Some(Opcode::CLOSE)).then(|| transaction(s)).flatten(),
        |s, _, key| s.opcode() == Some(Opcode::CLOSE_ACK) && transaction(s) == Some(key),
    ),
    "STRM-002" => Answer::new(
        |s, _| (s.is_sound() && s.opcode() == Some(Opcode::STREAM_OPEN)).then(|| transaction(s)).flatten(),
        |s, _, key| s.opcode() == Some(Opcode::STREAM_OPEN_ACK) && transaction(s) == Some(key),
    ),
    "STRM-029" => Answer::new(
        |s, _| match s.lax.body {
            Some(Body::RqCredit(credit)) if s.is_sound() && credit.kind == 0 => transaction(s),
            _ => None,
        },
        |s, _, key| s.opcode() == Some(Opcode::RQ_CREDIT) && transaction(s) == Some(key),
    ),
    "REL-014" => Answer::new(
        |s, c| new_data(s, c).filter(|_| s.cbh().is_some_and(|cbh| cbh.flags.has(Flags::AR))),
        acknowledges,
    ),
    "REL-015" => Answer::new(
        |s, c| new_data(s, c).filter(|_| s.data().is_some_and(|(msgh, _)| msgh.mflags.has(MFlags::EOM))),
        acknowledges,
    ),
    "REL-016" => Answer::new(
        |s, c| new_data(s, c).filter(|(path, _)| c.view.rx.get(path).is_some_and(|rx| rx.unacked >= 7)),
        acknowledges,
    ),
    "REL-017" => Answer::new(
        |s, c| new_data(s, c).filter(|(path, psn)| {
            c.view.rx.get(path).is_some_and(|rx| rx.highest.precedes(Psn::new(*psn)) && Psn::new(*psn) != rx.highest.add(1))
        }),
        acknowledges,
    ),
    "REL-018" => Answer::new(
        |s, c| match (c.view.arrival(s), s.cbh()) {
            (Some(Arrival::Duplicate), Some(cbh)) if !c.view.closing => Some((cbh.path, cbh.psn.value())),
            _ => None,
        },
        acknowledges,
    ),
    "REL-019" => Answer::new(new_data, acknowledges).within(|c| u64::from(c.declaration.party(c.side).ack_delay_us) * 1000),
    "REL-037" => Answer::new(
        |s, c| (s.is_sound() && s.opcode() == Some(Opcode::PATH_PROBE) && !c.view.closing).then(|| transaction(s)).flatten(),
        |s, _, key| s.opcode() == Some(Opcode::PATH_PROBE_ACK) && transaction(s) == Some(key),
    ),
    "ECN-009" => Answer::new(
        |s, c| new_data(s, c).filter(|(path, _)| {
            let marked = s.ecn == metaroce_wire::frame::Ecn::Ce;
            c.view.rx.get(path).map_or(marked, |rx| rx.last_ce != marked)
        }),
        acknowledges,
    ),
}

fn transaction(s: &Sighting<'_>) -> Option<Key> {
    s.cbh().map(|cbh| (0, cbh.psn.value()))
}

fn offers_this(params: &metaroce_wire::metaroce::Params) -> bool {
    (params.ver_min..=params.ver_max).contains(&1) && params.service_id == 1
}

fn rejects(s: &Sighting<'_>, reason: RejectReason, key: Key) -> bool {
    matches!(s.lax.body, Some(Body::Reject(reject)) if reject.reason == reason.0)
        && transaction(s) == Some(key)
}

/// Whether the scripted peer has spoiled the cookie: the first bit of the cookie's time, which no clock reaches.
fn is_flipped(s: &Sighting<'_>) -> bool {
    matches!(s.lax.body, Some(Body::Confirm(confirm)) if confirm.cookie[0] & 1 == 1)
}

fn new_data(s: &Sighting<'_>, c: &Context<'_>) -> Option<Key> {
    let new = c.view.arrival(s) == Some(Arrival::New) && !c.view.closing;
    s.cbh()
        .filter(|_| new)
        .map(|cbh| (cbh.path, cbh.psn.value()))
}

/// Whether a packet is an acknowledgment that reports the packet of `key`.
fn acknowledges(s: &Sighting<'_>, _: &Context<'_>, (path, psn): Key) -> bool {
    let (Some(cbh), psn) = (s.cbh(), Psn::new(psn)) else {
        return false;
    };
    let covered = match s.lax.body {
        Some(Body::Ack(_)) => psn.precedes_or_is(cbh.psn),
        Some(Body::AckSack(ack)) => psn.precedes_or_is(cbh.psn) || ack.sack.contains(cbh.psn, psn),
        _ => false,
    };
    cbh.path == path && covered
}
