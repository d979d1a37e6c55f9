//! Worlds that lie to the oracle: each must be found out.

use std::net::SocketAddr;

use metaroce_wire::crc::{PseudoHeader, seal};
use metaroce_wire::metaroce::parse_unsealed;

use crate::plan::{Kind, Post};
use metaroce_endpoint::core::{Completion, Endpoint, Event, Status, WorkKind};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// One byte of a payload changes on the way, and the CRC fits.
    Payload,
    /// A completion does not come.
    Lost,
    /// Two completions of a stream change places.
    Swapped,
    /// A completion comes twice.
    Twice,
    /// A byte changes that no message names.
    Outside,
    /// A completion comes as soon as the work is posted.
    TooEarly,
    /// A completion names another length.
    Length,
    /// Work fails for no reason.
    Failure,
}

/// A lie that is told once.
pub struct Mutation {
    pub lie: Lie,
    /// Chances to lie that are let pass.
    pub skip: u32,
    pub told: bool,
    early: Vec<(usize, Event)>,
}

impl Mutation {
    pub fn new(lie: Lie, skip: u32) -> Self {
        Self {
            lie,
            skip,
            told: false,
            early: Vec::new(),
        }
    }

    fn due(&mut self) -> bool {
        if self.told {
            return false;
        }
        self.told = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        self.told
    }

    pub fn on_packet(&mut self, from: SocketAddr, to: SocketAddr, bytes: &mut [u8]) {
        if self.lie != Lie::Payload || !matches!(bytes[1], 0x01..=0x3f) {
            return;
        }
        let Ok(packet) = parse_unsealed(bytes) else {
            return;
        };
        let payload = packet.body.payload().map_or(0, <[u8]>::len);
        if payload == 0 {
            return;
        }
        let at = bytes.len() - 4 - usize::from(bytes[4] >> 6) - payload;
        if self.due() {
            bytes[at + payload / 2] ^= 0x10;
            seal(&PseudoHeader::new(from.ip(), to), bytes).unwrap();
        }
    }

    pub fn on_post(&mut self, end: usize, conn: u32, stream: u16, wr_id: u64, post: Post) {
        let kind = if post.kind == Kind::Write {
            WorkKind::Write
        } else {
            WorkKind::Send
        };
        let plain = matches!(post.kind, Kind::Write | Kind::Send) && post.wrong.is_none();
        if self.lie == Lie::TooEarly && plain && post.signalled && post.len > 0 && self.due() {
            let (status, byte_len) = (Status::Success, post.len as u32);
            self.early.push((
                end,
                Event::Completion(Completion {
                    conn,
                    stream,
                    wr_id,
                    kind,
                    status,
                    byte_len,
                    imm: None,
                    invalidated: None,
                    solicited: false,
                }),
            ));
        }
    }

    pub fn on_events(&mut self, end: usize, events: &mut Vec<Event>, ends: &mut [Endpoint]) {
        if let Some(at) = self.early.iter().position(|(at, _)| *at == end) {
            events.push(self.early.remove(at).1);
        }
        let done = |event: &Event| match event {
            Event::Completion(done) if done.status == Status::Success => Some(*done),
            _ => None,
        };
        let Some(first) = events.iter().position(|e| done(e).is_some()) else {
            return;
        };
        let this = done(&events[first]).unwrap();
        let lie = self.lie;
        match lie {
            Lie::Lost if self.due() => {
                events.remove(first);
            }
            Lie::Twice if self.due() => events.push(events[first].clone()),
            Lie::Swapped => {
                let received =
                    |d: &Completion| matches!(d.kind, WorkKind::Recv | WorkKind::RecvWrite);
                let same = |d: &Completion| {
                    d.stream == this.stream && d.conn == this.conn && received(d) == received(&this)
                };
                let other =
                    (first + 1..events.len()).find(|&i| done(&events[i]).is_some_and(|d| same(&d)));
                if let Some(other) = other.filter(|_| self.due()) {
                    events.swap(first, other);
                }
            }
            Lie::Outside if self.due() => {
                let mr = (1..64)
                    .find(|&mr| ends[end].memory(mr).is_some_and(|m| !m.is_empty()))
                    .unwrap();
                ends[end].memory_mut(mr).unwrap()[0] ^= 1;
            }
            Lie::Length if self.due() => {
                let wrong = Completion {
                    byte_len: this.byte_len + 1,
                    ..this
                };
                events[first] = Event::Completion(wrong);
            }
            Lie::Failure if self.due() => {
                let wrong = Completion {
                    byte_len: 0,
                    status: Status::RetryExcErr,
                    ..this
                };
                events[first] = Event::Completion(wrong);
            }
            _ => {}
        }
    }
}
