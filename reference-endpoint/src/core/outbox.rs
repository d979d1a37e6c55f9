//! The sending side of a stream: the work on its way out.

use std::collections::VecDeque;

use metaroce_wire::serial::{Msn, Psn, Rqsn};

use super::config::{Data, Op, Work};
use super::connection::{NEVER, Shared};
use super::event::{Status, WorkKind};
use super::lazy_queue::LazyQueue;

/// Half the space of timestamps within which "earlier" means anything, in units of them (STRM-047).
const STAMP_LIFE: u64 = 1 << 30;

impl Op {
    pub(crate) fn kind(&self) -> WorkKind {
        match self {
            Self::Send | Self::SendImm(_) | Self::SendInv(_) => WorkKind::Send,
            Self::Write(_) | Self::WriteImm(..) => WorkKind::Write,
            Self::Read(_) => WorkKind::Read,
            Self::CmpSwap { .. } => WorkKind::CmpSwap,
            Self::FetchAdd { .. } => WorkKind::FetchAdd,
        }
    }

    /// Whether it consumes a receive of the peer.
    pub(super) fn consumes_receive(&self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendImm(_) | Self::SendInv(_) | Self::WriteImm(..)
        )
    }

    /// Whether the peer answers it with a message of its own.
    pub(super) fn is_answered(&self) -> bool {
        matches!(
            self,
            Self::Read(_) | Self::CmpSwap { .. } | Self::FetchAdd { .. }
        )
    }
}

/// Work posted and not yet complete.
#[derive(Debug)]
pub(super) struct Message {
    pub work: Work,
    /// Order of posting among all work of the connection.
    pub order: u64,
    /// Bytes of the message, or asked for.
    pub len: u32,
    pub msn: Msn,
    pub rqsn: Rqsn,
    /// Packets of the request.
    pub packets: u32,
    /// Packets sent at least once.
    pub sent: u32,
    pub acked: u32,
    /// Packets of the answer, and how many of them have come.
    pub answer_packets: u32,
    pub answered: u32,
    /// Path, epoch and PSN of a request that is answered, when it has been sent.
    pub origin: Option<(u8, u8, Psn)>,
    /// The peer's time in the latest NAK RNR of it.
    pub not_ready: Option<u32>,
    /// An answer has come that was longer than what was asked for.
    pub overlong: bool,
    /// What it fails with when it has been answered: the place of the answer is gone.
    pub failed_here: Option<Status>,
    /// It never goes out, or has failed here: the status that it gets when its turn comes.
    pub failed: Option<Status>,
}

impl Message {
    /// Whether the program has taken its memory away.
    pub(super) fn is_gone(&self, shared: &Shared<'_>) -> bool {
        matches!(&self.work.data, Data::Buffer(buffer) if !shared.memory.holds(buffer))
    }

    /// Whether a NAK RNR with this time of the peer was sent behind those that have come. What the network has doubled
    /// is no further refusal, and uses up no retry (RCV-007).
    pub(super) fn is_news(&mut self, timestamp: u32) -> bool {
        let is_later = |before: u32| u64::from(before.wrapping_sub(timestamp)) >= STAMP_LIFE;
        let news = self.not_ready.is_none_or(is_later);
        if news {
            self.not_ready = Some(timestamp);
        }
        news
    }

    /// Whether nothing of it is under way any more.
    pub(super) fn is_done(&self) -> bool {
        self.failed.is_some() || self.acked == self.packets && self.answered == self.answer_packets
    }

    /// Whether it is an operation that counts for the depth agreed: until its request is acknowledged and answered.
    pub(super) fn is_operation_under_way(&self) -> bool {
        let over = self.acked == self.packets && self.answered == self.answer_packets;
        self.sent > 0 && self.work.op.is_answered() && !over
    }

    /// Whether it is an operation that the peer still has to answer.
    pub(super) fn waits_for_answer(&self) -> bool {
        self.sent > 0 && self.answered < self.answer_packets
    }
}

/// The work of a stream and what the peer allows it.
pub(super) struct Outbox {
    queue: LazyQueue<Message>,
    /// Index of the first message that is not wholly sent, and of the first that is not wholly acknowledged.
    fresh: u32,
    unacked: u32,
    next_msn: Msn,
    next_rqsn: Rqsn,
    /// First RQSN for which the peer has no receive.
    credit: Rqsn,
    /// Timestamp of the packet that has told so, and when it came; never before the first.
    credit_stamp: u32,
    credit_came: u64,
    /// Operations sent that the peer still has to answer.
    pub unanswered: u32,
}

/// Why the next message does not go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blocked {
    /// There is none, or those before it have to end first.
    Nothing,
    /// The peer has no receive for it.
    Credit,
    /// As many Reads are under way as the peer takes.
    ReadDepth,
    /// As many atomic operations are under way as the peer takes.
    AtomicDepth,
}

/// What bounds a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub window: u16,
    /// Reads and atomic operations of the stream that may be under way.
    pub answered: u32,
    /// Whether one more Read may be under way.
    pub read: bool,
    /// Whether one more atomic operation may be under way.
    pub atomic: bool,
}

impl Outbox {
    pub(super) fn new(first_msn: Msn, first_rqsn: Rqsn) -> Self {
        Self {
            queue: LazyQueue::new(),
            fresh: 0,
            unacked: 0,
            next_msn: first_msn,
            next_rqsn: first_rqsn,
            credit: first_rqsn,
            credit_stamp: 0,
            credit_came: NEVER,
            unanswered: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn credit(&self) -> Rqsn {
        self.credit
    }

    /// The oldest message.
    pub(super) fn front(&self) -> Option<&Message> {
        self.queue.front()
    }

    /// The first message that is not wholly sent.
    pub(super) fn fresh(&self) -> Option<&Message> {
        self.queue.get(self.fresh as usize)
    }

    /// Adds a message and numbers it, unless it is never to be sent.
    pub(super) fn post(&mut self, mut message: Message) {
        message.msn = self.next_msn;
        if message.failed.is_none() {
            self.next_msn = self.next_msn.add(1);
            if message.work.op.consumes_receive() {
                message.rqsn = self.next_rqsn;
                self.next_rqsn = self.next_rqsn.add(1);
            }
        }
        self.queue.push_back(message);
    }

    fn index(&self, msn: Msn) -> Option<usize> {
        let first = self.queue.front()?.msn;
        let index = msn.distance_from(first) as usize;
        (index < self.queue.len()).then_some(index)
    }

    pub(super) fn message(&self, msn: Msn) -> Option<&Message> {
        self.queue.get(self.index(msn)?)
    }

    pub(super) fn message_mut(&mut self, msn: Msn) -> Option<&mut Message> {
        let index = self.index(msn)?;
        self.queue.get_mut(index)
    }

    /// The message whose next packet may be sent for the first time.
    ///
    /// # Errors
    /// [`Blocked`]: what it waits for.
    pub(super) fn sendable(&self, bounds: Bounds) -> Result<&Message, Blocked> {
        let message = self
            .queue
            .get(self.fresh as usize)
            .ok_or(Blocked::Nothing)?;
        let ahead = self.fresh - self.unacked.min(self.fresh);
        if message.failed.is_some() || ahead >= u32::from(bounds.window) {
            return Err(Blocked::Nothing);
        }
        if message.sent > 0 {
            return Ok(message);
        }
        let op = &message.work.op;
        if message.work.fence && self.unanswered > 0 {
            return Err(Blocked::Nothing);
        }
        if op.consumes_receive() && !message.rqsn.precedes(self.credit) {
            return Err(Blocked::Credit);
        }
        if op.is_answered() && self.unanswered >= bounds.answered {
            return Err(Blocked::Nothing);
        }
        match op.kind() {
            WorkKind::Read if !bounds.read => Err(Blocked::ReadDepth),
            WorkKind::CmpSwap | WorkKind::FetchAdd if !bounds.atomic => Err(Blocked::AtomicDepth),
            _ => Ok(message),
        }
    }

    /// Counts a first transmission of the next packet; returns the message's number, the position of the packet and
    /// whether it was the first one of an operation that will be answered.
    pub(super) fn send_next(&mut self) -> Option<(Msn, u32, bool)> {
        let message = self.queue.get_mut(self.fresh as usize)?;
        let index = message.sent;
        message.sent += 1;
        let asks = index == 0 && message.work.op.is_answered();
        let msn = message.msn;
        if message.sent == message.packets {
            self.fresh += 1;
        }
        self.unanswered += u32::from(asks);
        Some((msn, index, asks))
    }

    /// Takes a limit that a packet with this timestamp has told. An earlier packet changes nothing, unless the one before
    /// came so long ago that its timestamp has no order with this one (STRM-047). True when it allows more.
    pub(super) fn on_credit(&mut self, now: u64, timestamp: u32, unit: u64, limit: Rqsn) -> bool {
        let told = self.credit_came != NEVER;
        let earlier = (timestamp.wrapping_sub(self.credit_stamp) as i32) < 0;
        if told && earlier && now.saturating_sub(self.credit_came) < STAMP_LIFE * unit {
            return false;
        }
        self.credit_stamp = timestamp;
        self.credit_came = now;
        let more = self.credit.precedes(limit);
        if more {
            self.credit = limit;
        }
        more
    }

    /// Counts an acknowledged packet. Tells what operation is over by that, if one is.
    pub(super) fn on_acked(&mut self, msn: Msn) -> Option<WorkKind> {
        let mut over = None;
        if let Some(message) = self.message_mut(msn) {
            let under_way = message.is_operation_under_way();
            message.acked += 1;
            if under_way && !message.is_operation_under_way() {
                over = Some(message.work.op.kind());
            }
        }
        let acked =
            |message: &Message| message.acked == message.packets && message.failed.is_none();
        while self.queue.get(self.unacked as usize).is_some_and(acked) {
            self.unacked += 1;
        }
        over
    }

    /// Makes the work end that is not begun yet.
    pub(super) fn flush_unstarted(&mut self) {
        for message in self.queue.iter_mut().filter(|message| message.sent == 0) {
            message.failed.get_or_insert(Status::WrFlushErr);
        }
    }

    /// When the oldest message was posted, if it has ended.
    pub(super) fn ended(&self) -> Option<u64> {
        let front = self.queue.front().filter(|message| message.is_done());
        front.map(|message| message.order)
    }

    /// Takes the oldest message if it has ended (STRM-028).
    pub(super) fn pop_ended(&mut self) -> Option<Message> {
        if !self.queue.front()?.is_done() {
            return None;
        }
        self.fresh = self.fresh.saturating_sub(1);
        self.unacked = self.unacked.saturating_sub(1);
        let message = self.queue.pop_front();
        if self.queue.capacity() > 64 {
            self.rest();
        }
        message
    }

    /// Gives back the memory of work that is over.
    pub(super) fn rest(&mut self) {
        self.queue.rest();
    }

    /// Takes everything.
    pub(super) fn drain(&mut self) -> VecDeque<Message> {
        self.fresh = 0;
        self.unacked = 0;
        self.unanswered = 0;
        self.queue.take()
    }
}
