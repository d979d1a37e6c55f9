//! One stream: what it is, its two directions, and what only a few streams need.

use std::collections::{BTreeMap, VecDeque};

use metaroce_wire::metaroce::NakCode;
use metaroce_wire::serial::{Msn, Psn, Rqsn};

use super::config::StreamConfig;
use super::event::WorkKind;
use super::inbox::{Extras, Inbox};
use super::outbox::Outbox;
use super::transitions::StreamState;

/// Where the bytes of an answer come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The memory of a Read.
    Memory,
    /// What the 8 bytes of an atomic operation were.
    Value(u64),
}

/// The answer to a request of the peer, from when the request is carried out until the answer is wholly acknowledged.
#[derive(Debug)]
pub(super) struct Answer {
    pub msn: Msn,
    pub len: u32,
    pub packets: u32,
    pub sent: u32,
    pub acked: u32,
    pub source: Source,
    /// Address and key, and where the request came from.
    pub request: Extras,
    /// Payloads that were sent and may have to be sent again: the memory may have changed since (OPS-036).
    pub kept: BTreeMap<u32, Box<[u8]>>,
}

/// A message that was refused.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refusal {
    pub msn: Msn,
    /// It is the answer to a request of this side.
    pub response: bool,
    pub code: NakCode,
    /// Path, epoch and PSN of the packet that was refused.
    pub origin: (u8, u8, Psn),
    /// When the latest NAK was sent, and when it is due again; how often it was repeated.
    pub sent: u64,
    pub due: u64,
    pub repeated: u32,
}

/// What only a few streams need.
#[derive(Debug, Default)]
pub(super) struct Rare {
    pub answers: VecDeque<Answer>,
    pub refusals: Vec<Refusal>,
    /// When the stream was reset for this side.
    pub reset_at: u64,
    /// Questions for credit in a row that have brought none, and when the next one may be asked.
    pub credit_tries: u32,
    pub ask_credit_at: u64,
    /// It waits for credit.
    pub starving: bool,
    /// Operations that are under way until the stream has been reset.
    pub over: Vec<WorkKind>,
}

/// One stream, both directions.
pub(super) struct Stream {
    pub id: u16,
    pub state: StreamState,
    /// It stands in the row of streams with something new to send.
    pub active: bool,
    /// It stands in the row of those whose next operation waits for one of another stream.
    pub waiting: bool,
    pub config: StreamConfig,
    pub tx: Outbox,
    pub rx: Inbox,
    /// Packets that bear its number and are unacknowledged or wait to be moved (ERR-018).
    pub psns: u32,
    /// Work that has succeeded, modulo 2^32; payload bytes of it and of whole answers, and payload bytes placed.
    pub succeeded: u32,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    rare: Option<Box<Rare>>,
}

impl Stream {
    pub(super) fn new(id: u16, config: StreamConfig, first_msn: Msn, first_rqsn: Rqsn) -> Self {
        Self {
            id,
            state: StreamState::None,
            active: false,
            waiting: false,
            config,
            tx: Outbox::new(first_msn, first_rqsn),
            rx: Inbox::new(first_msn, first_rqsn),
            psns: 0,
            succeeded: 0,
            bytes_sent: 0,
            bytes_received: 0,
            rare: None,
        }
    }

    /// What only a few streams need, when this one does.
    pub(super) fn rare(&self) -> Option<&Rare> {
        self.rare.as_deref()
    }

    pub(super) fn rare_mut(&mut self) -> Option<&mut Rare> {
        self.rare.as_deref_mut()
    }

    /// Makes room for what only a few streams need.
    pub(super) fn make_rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// The answer with packets that have never been sent.
    pub(super) fn fresh_answer(&mut self) -> Option<&mut Answer> {
        let answers = &mut self.rare.as_deref_mut()?.answers;
        answers
            .iter_mut()
            .find(|answer| answer.sent < answer.packets)
    }

    pub(super) fn answer_mut(&mut self, msn: Msn) -> Option<&mut Answer> {
        let answers = &mut self.rare.as_deref_mut()?.answers;
        answers.iter_mut().find(|answer| answer.msn == msn)
    }

    /// Counts an acknowledged packet of an answer, and forgets the answer when it was the last one (OPS-045, OPS-046);
    /// returns the payload bytes of the answer then.
    pub(super) fn on_answer_acked(&mut self, msn: Msn, index: u32) -> u64 {
        let Some(rare) = self.rare.as_deref_mut() else {
            return 0;
        };
        let Some(at) = rare.answers.iter().position(|answer| answer.msn == msn) else {
            return 0;
        };
        let answer = &mut rare.answers[at];
        answer.acked += 1;
        answer.kept.remove(&index);
        if answer.acked < answer.packets {
            return 0;
        }
        // The answer to an atomic operation has its value in the header.
        let reads = answer.source == Source::Memory;
        let bytes = if reads { u64::from(answer.len) } else { 0 };
        rare.answers.remove(at);
        self.bytes_sent += bytes;
        bytes
    }

    pub(super) fn refusal_mut(&mut self, msn: Msn, response: bool) -> Option<&mut Refusal> {
        let refusals = &mut self.rare.as_deref_mut()?.refusals;
        refusals
            .iter_mut()
            .find(|r| r.msn == msn && r.response == response)
    }

    /// Whether messages flow.
    pub(super) fn is_open(&self) -> bool {
        self.state == StreamState::Open
    }

    /// Gives back what a stream without work does not need.
    pub(super) fn rest(&mut self) {
        let unused = |rare: &Rare| {
            rare.answers.is_empty()
                && rare.refusals.is_empty()
                && !rare.starving
                && rare.credit_tries == 0
                && rare.reset_at == 0
        };
        if self.rare().is_some_and(unused) {
            self.rare = None;
        }
        self.tx.rest();
        self.rx.rest();
    }
}
