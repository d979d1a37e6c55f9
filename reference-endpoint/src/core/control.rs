//! Control: requests that are repeated until they are answered.

use std::collections::BTreeSet;

/// Pause before the first repetition, ns; it doubles (CONN-023).
const FIRST_PAUSE: u64 = 50_000_000;
/// Repetitions of a request, at most (CONN-024).
const MOST_REPETITIONS: u16 = 7;

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Open,
    Confirm,
    StreamOpen(u16),
    StreamReset(u16),
    Retire(u16),
    Close,
    Credit(u16),
}

/// A control packet on its way out.
pub(super) struct Control {
    pub bytes: Vec<u8>,
    /// UDP source port.
    pub port: u16,
    pub plane: u8,
    /// The request that it is, for whose pause it counts when it leaves.
    pub request: Option<u32>,
}

/// A request without an answer so far.
pub(super) struct Request {
    pub id: u32,
    pub purpose: Purpose,
    pub bytes: Vec<u8>,
    due: u64,
    /// When it was last sent, and the pause after that.
    left: u64,
    pause: u64,
    repetitions: u16,
    plane: u8,
}

/// The requests of a connection.
#[derive(Default)]
pub(super) struct Requests {
    open: Vec<Request>,
    /// Streams for which credit is asked: there can be many, and each is looked for often.
    credit: BTreeSet<u16>,
}

/// What the timer of a request asks for.
pub(super) enum Turn {
    /// To be sent again: the transaction, the bytes, how often before, and the plane.
    Repeat(u32, Vec<u8>, u16, u8),
    GiveUp(Purpose),
}

impl Requests {
    pub(super) fn add(
        &mut self,
        now: u64,
        id: u32,
        (purpose, plane): (Purpose, u8),
        bytes: Vec<u8>,
    ) {
        if let Purpose::Credit(stream) = purpose {
            self.credit.insert(stream);
        }
        self.open.push(Request {
            id,
            purpose,
            bytes,
            due: now + FIRST_PAUSE,
            left: now,
            pause: FIRST_PAUSE,
            repetitions: 0,
            plane,
        });
    }

    /// Notes that a request leaves: the pause before a repetition counts from then on, and not from when it was made.
    pub(super) fn left(&mut self, now: u64, id: u32) {
        let same = self.open.iter_mut().filter(|request| request.id == id);
        for request in same {
            request.due = now + request.pause;
            request.left = now;
        }
    }

    /// Takes the request that an answer with `id` belongs to, if it is of that kind.
    pub(super) fn answered(&mut self, id: u32, is: impl Fn(Purpose) -> bool) -> Option<Request> {
        let index = self
            .open
            .iter()
            .position(|request| request.id == id && is(request.purpose))?;
        let request = self.open.swap_remove(index);
        self.over(request.purpose);
        Some(request)
    }

    fn over(&mut self, purpose: Purpose) {
        if let Purpose::Credit(stream) = purpose {
            self.credit.remove(&stream);
        }
    }

    /// Whether credit is being asked for a stream.
    pub(super) fn asks_credit(&self, stream: u16) -> bool {
        self.credit.contains(&stream)
    }

    pub(super) fn has(&self, purpose: Purpose) -> bool {
        self.open.iter().any(|request| request.purpose == purpose)
    }

    /// Drops the requests that nobody needs an answer to any more.
    pub(super) fn cancel(&mut self, is: impl Fn(Purpose) -> bool) {
        self.open.retain(|request| !is(request.purpose));
        self.credit.retain(|stream| !is(Purpose::Credit(*stream)));
    }

    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.credit.clear();
    }

    /// Gives back the memory of requests that have been answered.
    pub(super) fn rest(&mut self) {
        self.open.shrink_to_fit();
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        self.open.iter().map(|request| request.due).min()
    }

    /// What is due at `now`. A repetition takes another port and another one of `planes` planes (CONN-044, PLN-007), but for
    /// the handshake, which stays in plane 0.
    pub(super) fn on_timer(&mut self, now: u64, planes: u8) -> Vec<Turn> {
        let mut turns = Vec::new();
        self.open.retain_mut(|request| {
            if now < request.due {
                return true;
            }
            if request.repetitions == MOST_REPETITIONS {
                if let Purpose::Credit(stream) = request.purpose {
                    self.credit.remove(&stream);
                }
                turns.push(Turn::GiveUp(request.purpose));
                return false;
            }
            request.repetitions += 1;
            // Who comes late has paused longer than was meant, and that is what doubles (CONN-023).
            request.pause = 2 * request.pause.max(now.saturating_sub(request.left));
            request.due = now + request.pause;
            if !matches!(request.purpose, Purpose::Open | Purpose::Confirm) {
                request.plane = (request.plane + 1) % planes.max(1);
            }
            let (id, bytes) = (request.id, request.bytes.clone());
            turns.push(Turn::Repeat(id, bytes, request.repetitions, request.plane));
            true
        });
        turns
    }
}
