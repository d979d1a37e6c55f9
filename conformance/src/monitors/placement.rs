//! Memory: what the harness found where messages went, and around them.
//!
//! A mismatch is charged to one clause: that of the fault which the link or the peer had put in its way, or else to the
//! clause about placement itself.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use metaroce_wire::serial::Psn;
use sha2::{Digest, Sha256};

use super::check::rules;
use super::panel::{Make, Monitor, Tally};
use crate::evidence::{Event, MemoryPart, What};
use crate::model::{Connection, InMessage, Model, Relation, Sighting, SuspectClass};

/// Value of memory that nothing was placed in.
const FILL: u8 = 0xee;

rules! { "placement.rs":
    "CONV-008" "damaged data is not placed" => Make::Monitor(|| Placement::boxed(Charge::Damaged));
    "REL-006" "a duplicate is not placed" => Make::Monitor(|| Placement::boxed(Charge::Duplicate));
    "STRM-019" "a Write lands where its packets say" => Make::Monitor(|| Placement::boxed(Charge::Write));
    "STRM-020" "a Send lands in the receive that its RQSN selects" => Make::Monitor(|| Placement::boxed(Charge::Send));
    "STRM-021" "nothing changes around a message" => Make::Monitor(|| Placement::boxed(Charge::Outside));
    "STRM-022" "what was reported as arrived has been placed" => Make::Monitor(|| Placement::boxed(Charge::Unplaced));
    "STRM-032" "a Write that no region lets in is not placed" => Make::Monitor(|| Placement::boxed(Charge::Denied));
}

/// Write packets that are remembered, at most.
const REMEMBERED: usize = 4096;

/// What a look into memory speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Charge {
    Damaged,
    Duplicate,
    Denied,
    Unplaced,
    Outside,
    Write,
    Send,
}

/// The looks into memory that matched nothing, until the end tells what they had in common.
struct Placement {
    charge: Charge,
    mismatches: Vec<(Look, String, String)>,
    /// The latest Write packets in order of arrival, for duplicates alone: path and PSN, key, first and last byte.
    writes: VecDeque<((u8, Psn), u32, RangeInclusive<u64>)>,
    /// Whether a duplicate has come after newer data to the same place: only then memory shows whether it was placed.
    staged: bool,
}

impl Placement {
    fn boxed(charge: Charge) -> Box<dyn Monitor> {
        Box::new(Self {
            charge,
            mismatches: Vec::new(),
            writes: VecDeque::new(),
            staged: false,
        })
    }
}

/// A look into memory, with what went before it.
struct Look {
    inside: bool,
    /// Whether it was a receive; nothing for memory that no single message went to.
    send: Option<bool>,
    matches: bool,
    damaged: bool,
    duplicated: bool,
    denied: bool,
    untouched: bool,
}

impl Look {
    fn new(event: &Event, model: &Model) -> Option<Self> {
        let What::Memory {
            wr_id,
            part,
            len,
            expected,
            seen,
        } = &event.what
        else {
            return None;
        };
        if event.side != model.side() {
            return None;
        }
        let connection = model.established()?;
        let facts = &model.context.facts;
        let receive = facts.place(event.side, true, *wr_id);
        let write = facts.place(event.side.other(), false, *wr_id);
        let (message, send) = match (receive, write) {
            (Some((stream, index)), _) => (received(connection, stream, index), Some(true)),
            (None, Some((stream, index))) => (Some((stream, index as u64)), Some(false)),
            (None, None) => (None, None),
        };
        let suspect = |class| model.suspects.iter().any(|suspect| suspect.class == class);
        let matches = expected == seen;
        // A Write is said to be done by the peer: what never came is not missing.
        if let (Some((stream, index)), Some(false)) = (message, send)
            && !matches
            && !has_come(connection, stream, index)
        {
            return None;
        }
        let (damaged, duplicated) = match message {
            Some((stream, index)) => {
                let known = connection
                    .streams
                    .get(&stream)
                    .and_then(|stream| stream.inward.get(&index));
                (
                    connection.damaged.contains(&(stream, index)),
                    known.is_some_and(|message| message.duplicated),
                )
            }
            None => {
                let mut messages = connection.streams.values().flat_map(|s| s.inward.values());
                (
                    !connection.damaged.is_empty(),
                    messages.any(|message| message.duplicated),
                )
            }
        };
        Some(Self {
            inside: *part == MemoryPart::Inside,
            send,
            matches,
            damaged,
            duplicated,
            denied: suspect(SuspectClass::AccessDenied),
            untouched: !matches && *seen == digest_of_fill(*len),
        })
    }

    /// Whether a clause was exercised by it.
    fn speaks_of(&self, charge: Charge) -> bool {
        match charge {
            Charge::Damaged => self.damaged,
            Charge::Duplicate => self.duplicated && self.inside,
            Charge::Denied => self.denied,
            Charge::Unplaced => self.inside,
            Charge::Outside => !self.inside,
            Charge::Write => self.inside && self.send != Some(true),
            Charge::Send => self.inside && self.send == Some(true),
        }
    }

    /// The one clause that a mismatch is charged to.
    fn culprit(&self) -> Charge {
        if self.inside && self.untouched {
            Charge::Unplaced
        } else if self.damaged && self.inside {
            Charge::Damaged
        } else if self.denied {
            Charge::Denied
        } else if !self.inside {
            Charge::Outside
        } else if self.duplicated {
            Charge::Duplicate
        } else if self.send == Some(true) {
            Charge::Send
        } else {
            Charge::Write
        }
    }
}

/// Whether all packets of a message have been seen to arrive, damaged or not.
fn has_come(connection: &Connection, id: u16, index: u64) -> bool {
    connection.streams.get(&id).is_some_and(|stream| {
        index < stream.complete_below
            || connection.damaged.contains(&(id, index))
            || stream
                .inward
                .get(&index)
                .is_some_and(InMessage::is_complete)
    })
}

/// Stream and position of the message that a receive took.
fn received(connection: &Connection, id: u16, index: usize) -> Option<(u16, u64)> {
    let stream = connection.streams.get(&id)?;
    let wanted = stream.first_rqsn.add(index as u16);
    let mut messages = stream.inward.iter();
    let found = messages.find(|(_, message)| message.send && message.msgh.rqsn == wanted);
    found.map(|(index, _)| (id, *index))
}

fn digest_of_fill(len: u64) -> String {
    let mut digest = Sha256::new();
    let chunk = [FILL; 4096];
    let mut left = len;
    while left > 0 {
        let part = left.min(chunk.len() as u64);
        digest.update(&chunk[..part as usize]);
        left -= part;
    }
    digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

impl Monitor for Placement {
    fn sighting(&mut self, s: &Sighting<'_>, _: &Model, _: &mut Tally) {
        let (Charge::Duplicate, Relation::DataArrived(arrival), Some((msgh, Some(tagh), payload))) =
            (self.charge, &s.relation, s.message())
        else {
            return;
        };
        let first = tagh.va.saturating_add(u64::from(msgh.offset));
        let Some(rest) = (payload.len() as u64).checked_sub(1) else {
            return;
        };
        let place = first..=first.saturating_add(rest);
        let (name, key) = ((arrival.path, arrival.psn), tagh.rkey);
        if !arrival.duplicate {
            self.writes.push_back((name, key, place));
            if self.writes.len() > REMEMBERED {
                self.writes.pop_front();
            }
            return;
        }
        let mut newer = self.writes.iter().skip_while(|(other, ..)| *other != name);
        newer.next();
        self.staged |= newer.any(|(_, other, range)| {
            *other == key && range.start() <= place.end() && place.start() <= range.end()
        });
    }

    fn event(&mut self, event: &Event, model: &Model, tally: &mut Tally) {
        let Some(look) = Look::new(event, model) else {
            return;
        };
        let What::Memory {
            wr_id,
            len,
            expected,
            seen,
            ..
        } = &event.what
        else {
            return;
        };
        if look.matches {
            let shows = self.charge != Charge::Duplicate || self.staged;
            if shows && look.speaks_of(self.charge) {
                tally.held();
            }
        } else if self.mismatches.len() < 4096 {
            let place = if look.inside { "in" } else { "around" };
            let expected = format!("SHA-256 {expected} over {len} bytes {place} work {wr_id}");
            self.mismatches
                .push((look, expected, format!("SHA-256 {seen}")));
        }
    }

    fn finish(&mut self, _: &Model, tally: &mut Tally) {
        // Whoever writes past the end of messages also spoils what lies inside others.
        let stray = |look: &Look| !look.inside && look.culprit() == Charge::Outside;
        let strays = self.mismatches.iter().any(|(look, ..)| stray(look));
        for (look, expected, seen) in self.mismatches.drain(..) {
            let culprit = if strays {
                Charge::Outside
            } else {
                look.culprit()
            };
            if culprit == self.charge {
                tally.broken(Vec::new(), expected, seen);
            }
        }
    }
}
