//! STREAM_OPEN and STREAM_RESET that were answered not long ago: a late repetition draws the same answer and does
//! nothing else (CONN-055).

use std::collections::BTreeMap;

use metaroce_wire::metaroce::StreamOpenAck;
use metaroce_wire::serial::{Psn, Rqsn};

/// How long an answer is remembered, ns: the answer time, longer than a requester repeats.
const MEMORY: u64 = 30_000_000_000;
/// Answers that are kept without a look at how old they are.
const FEW: usize = 64;

/// What STREAM_OPEN was answered. All else of the answer follows from the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Opened {
    pub status: u16,
    pub rq_limit: Rqsn,
}

/// An answer to a STREAM_OPEN, or to a STREAM_RESET, which holds nothing.
#[derive(Debug, Clone, Copy)]
struct Answered {
    id: u32,
    at: u64,
    stream: u16,
    open: Option<Opened>,
}

impl Answered {
    fn is_young(&self, now: u64) -> bool {
        now <= self.at.saturating_add(MEMORY)
    }
}

const _: () = assert!(size_of::<Answered>() <= 24, "a connection has many streams");

/// The answers of one connection.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// By transaction id: each is higher than the one before, so that a new one has its place at the end.
    all: Vec<Answered>,
    /// The latest STREAM_RESET of each stream.
    resets: BTreeMap<u16, Psn>,
    /// After the latest look at how old they are: how many were left, and when the oldest of them was given.
    left: usize,
    oldest: u64,
}

impl Answers {
    /// Whether one more answer can be remembered, `most` of them in all. What could not be is not to be acted upon: its
    /// requester repeats it.
    pub(super) fn has_room(&mut self, now: u64, most: usize) -> bool {
        let many = self.all.len() >= (2 * self.left).clamp(FEW, most.max(FEW));
        if many && now > self.oldest.saturating_add(MEMORY) {
            self.all.retain(|answered| answered.is_young(now));
            let all = &self.all;
            self.resets.retain(|_, id| place(all, *id).is_ok());
            self.left = self.all.len();
            let times = self.all.iter().map(|answered| answered.at);
            self.oldest = times.min().unwrap_or(now);
        }
        self.all.len() < most
    }

    /// Whether the request under `id` was answered not long ago, and so is answered again now.
    pub(super) fn answers_again(&mut self, now: u64, id: Psn) -> bool {
        let young = self.has(now, id);
        if young && let Ok(at) = place(&self.all, id) {
            self.all[at].at = now;
        }
        young
    }

    fn get(&self, id: Psn) -> Option<&Answered> {
        place(&self.all, id).ok().map(|at| &self.all[at])
    }

    fn has(&self, now: u64, id: Psn) -> bool {
        self.get(id).is_some_and(|answered| answered.is_young(now))
    }

    /// What the STREAM_OPEN of `stream` under `id` was answered.
    pub(super) fn opened(&self, id: Psn, stream: u16) -> Option<Opened> {
        let known = self.get(id);
        known.filter(|answered| answered.stream == stream)?.open
    }

    /// Gives back the memory that is not used.
    pub(super) fn rest(&mut self) {
        self.all.shrink_to_fit();
    }

    /// Remembers what a STREAM_OPEN was answered.
    pub(super) fn add_open(&mut self, now: u64, id: Psn, answer: &StreamOpenAck) {
        let open = Some(Opened {
            status: answer.status,
            rq_limit: answer.rq_limit,
        });
        self.add(now, id, answer.stream, open);
    }

    /// Remembers that a STREAM_RESET was answered.
    pub(super) fn add_reset(&mut self, now: u64, id: Psn, stream: u16) {
        self.add(now, id, stream, None);
        let latest = self.resets.entry(stream).or_insert(id);
        if latest.precedes(id) {
            *latest = id;
        }
    }

    fn add(&mut self, now: u64, id: Psn, stream: u16, open: Option<Opened>) {
        if self.all.is_empty() {
            self.oldest = now;
        }
        let answered = Answered {
            id: id.value(),
            at: now,
            stream,
            open,
        };
        match place(&self.all, id) {
            Ok(at) => self.all[at] = answered,
            Err(at) => self.all.insert(at, answered),
        }
    }

    /// Whether a STREAM_OPEN was overtaken by a STREAM_RESET of the same stream: its peer has given the stream up.
    pub(super) fn is_overtaken(&self, now: u64, id: Psn, stream: u16) -> bool {
        let reset = self.resets.get(&stream);
        reset.is_some_and(|reset| id.precedes(*reset) && self.has(now, *reset))
    }
}

/// Where an answer is, or where it belongs.
fn place(all: &[Answered], id: Psn) -> Result<usize, usize> {
    all.binary_search_by_key(&id.value(), |answered| answered.id)
}

#[cfg(test)]
mod tests {
    use metaroce_wire::metaroce::U24;
    use metaroce_wire::serial::Msn;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn opened(answers: &mut Answers, now: u64, id: u32, stream: u16) {
        let answer = StreamOpenAck {
            stream,
            status: 0,
            rsvd_a: 0,
            first_msn: Msn::new(0),
            first_rqsn: Rqsn::new(0),
            rq_limit: Rqsn::new(7),
            rsvd_b: 0,
            src_qpn: U24::new(1),
            rsvd_c: 0,
            dst_qpn: U24::new(1),
        };
        answers.add_open(now, Psn::new(id), &answer);
    }

    #[test]
    fn an_answer_is_known_for_the_answer_time() {
        let mut answers = Answers::default();
        opened(&mut answers, 5, 9, 2);
        let id = Psn::new(9);
        assert!(answers.has(5 + 30 * SECOND, id));
        assert!(!answers.has(6 + 30 * SECOND, id));
        let rq_limit = Rqsn::new(7);
        let status = 0;
        assert_eq!(answers.opened(id, 2), Some(Opened { status, rq_limit }));
        assert_eq!(answers.opened(id, 4), None);
    }

    #[test]
    fn the_answer_time_begins_anew_with_each_answer() {
        let mut answers = Answers::default();
        answers.add_reset(0, Psn::new(9), 2);
        assert!(answers.answers_again(29 * SECOND, Psn::new(9)));
        assert!(answers.answers_again(40 * SECOND, Psn::new(9)));
        assert!(!answers.answers_again(71 * SECOND, Psn::new(9)));
    }

    #[test]
    fn an_open_before_the_latest_reset_of_its_stream_is_overtaken() {
        let mut answers = Answers::default();
        answers.add_reset(0, Psn::new(20), 2);
        answers.add_reset(0, Psn::new(10), 2);
        assert!(answers.is_overtaken(0, Psn::new(19), 2));
        assert!(!answers.is_overtaken(0, Psn::new(21), 2));
        assert!(!answers.is_overtaken(0, Psn::new(19), 4));
        assert!(!answers.is_overtaken(31 * SECOND, Psn::new(19), 2));
    }

    #[test]
    fn no_young_answer_makes_room_for_another() {
        let mut answers = Answers::default();
        for id in 0..100 {
            assert!(answers.has_room(0, 100));
            opened(&mut answers, 0, id, id as u16);
        }
        assert!(!answers.has_room(SECOND, 100));
        assert!(answers.has(SECOND, Psn::new(0)));
        assert!(answers.has_room(31 * SECOND, 100));
        assert!(answers.all.is_empty());
    }
}
