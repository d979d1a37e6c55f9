//! One stream: the work on its way out, and the messages coming in.

use std::collections::VecDeque;

use metaroce_wire::serial::{Msn, Psn, Rqsn};

use super::config::Buffer;
use super::event::WorkKind;
use super::transitions::StreamState;

/// Work posted and not yet complete.
#[derive(Debug, Clone, Copy)]
pub(super) struct TxMessage {
    pub wr_id: u64,
    /// Order of posting among all work of the connection.
    pub order: u64,
    pub kind: WorkKind,
    pub buffer: Buffer,
    /// Address and key of a Write.
    pub remote: (u64, u32),
    pub msn: Msn,
    pub rqsn: Rqsn,
    pub packets: u32,
    /// Packets sent at least once.
    pub sent: u32,
    pub acked: u32,
    /// It is not begun any more, and ends when its turn comes.
    pub flushed: bool,
}

impl TxMessage {
    /// Whether it has packets that are still to be sent for the first time.
    pub(super) fn has_more(&self) -> bool {
        self.sent < self.packets && !self.flushed
    }
}

/// A posted receive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Receive {
    pub wr_id: u64,
    pub order: u64,
    pub buffer: Buffer,
    /// The peer has sent a message that is longer.
    pub overrun: bool,
}

/// Why a packet does not go with what its message has shown before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Inconsistent;

/// A message of which packets have arrived.
#[derive(Debug, Clone, Copy, Default)]
struct RxMessage {
    /// 0 while none has arrived.
    packets: u32,
    arrived: u32,
    len: u32,
    /// The receive that it consumes; none for a Write.
    rqsn: Option<Rqsn>,
}

/// One stream, both directions.
pub(super) struct Stream {
    pub id: u16,
    pub state: StreamState,
    /// Transaction that opened it, at the side that was asked.
    pub opened_by: Option<Psn>,
    pub queue: VecDeque<TxMessage>,
    pub next_msn: Msn,
    pub next_rqsn: Rqsn,
    /// First RQSN for which the peer has no receive.
    pub credit: Rqsn,
    pub asked_at: Option<u64>,
    lowest: Msn,
    incoming: VecDeque<RxMessage>,
    receives: VecDeque<Receive>,
    first_receive: Rqsn,
}

impl Stream {
    pub(super) fn new(id: u16, first_msn: Msn, first_rqsn: Rqsn) -> Self {
        Self {
            id,
            state: StreamState::None,
            opened_by: None,
            queue: VecDeque::new(),
            next_msn: first_msn,
            next_rqsn: first_rqsn,
            credit: first_rqsn,
            asked_at: None,
            lowest: first_msn,
            incoming: VecDeque::new(),
            receives: VecDeque::new(),
            first_receive: first_rqsn,
        }
    }

    /// Whether it was opened.
    pub(super) fn is_known(&self) -> bool {
        self.state.is_known()
    }

    pub(super) fn post(&mut self, mut message: TxMessage) {
        message.msn = self.next_msn;
        self.next_msn = self.next_msn.add(1);
        if message.kind == WorkKind::Send {
            message.rqsn = self.next_rqsn;
            self.next_rqsn = self.next_rqsn.add(1);
        }
        self.queue.push_back(message);
    }

    pub(super) fn message(&self, msn: Msn) -> Option<&TxMessage> {
        let first = self.queue.front()?.msn;
        self.queue.get(msn.distance_from(first) as usize)
    }

    /// The message whose next packet is to be sent, unless the message window forbids. Only the first `window`
    /// messages can be under way.
    pub(super) fn sendable(&mut self, window: u16) -> Option<&mut TxMessage> {
        self.queue
            .iter_mut()
            .take(usize::from(window))
            .find(|message| message.has_more())
    }

    pub(super) fn has_credit(&self, message: &TxMessage) -> bool {
        message.kind != WorkKind::Send || message.rqsn.precedes(self.credit)
    }

    /// Takes a newer limit; an older one changes nothing.
    pub(super) fn on_credit(&mut self, limit: Rqsn) {
        if self.credit.precedes(limit) {
            self.credit = limit;
        }
    }

    /// Counts an acknowledged packet.
    pub(super) fn on_acked(&mut self, msn: Msn) {
        if let Some(first) = self.queue.front().map(|message| message.msn)
            && let Some(message) = self.queue.get_mut(msn.distance_from(first) as usize)
        {
            message.acked += 1;
        }
    }

    /// Ends the work that is not begun yet.
    pub(super) fn flush_unstarted(&mut self) {
        let unstarted = self.queue.iter_mut().filter(|message| message.sent == 0);
        unstarted.for_each(|message| message.flushed = true);
    }

    /// Takes the work that has ended, in order (STRM-028).
    pub(super) fn take_ended(&mut self) -> Vec<TxMessage> {
        let mut complete = Vec::new();
        while self
            .queue
            .front()
            .is_some_and(|message| message.acked == message.packets || message.flushed)
        {
            complete.extend(self.queue.pop_front());
        }
        complete
    }

    pub(super) fn post_receive(&mut self, receive: Receive) {
        self.receives.push_back(receive);
    }

    pub(super) fn receive(&self, rqsn: Rqsn) -> Option<&Receive> {
        self.receives
            .get(usize::from(rqsn.distance_from(self.first_receive)))
    }

    pub(super) fn mark_overrun(&mut self, rqsn: Rqsn) {
        let index = usize::from(rqsn.distance_from(self.first_receive));
        if let Some(receive) = self.receives.get_mut(index) {
            receive.overrun = true;
        }
    }

    pub(super) fn has_receives(&self) -> bool {
        !self.receives.is_empty()
    }

    pub(super) fn rq_limit(&self) -> Rqsn {
        // At most 32767 receives are promised; more may be posted.
        self.first_receive
            .add(self.receives.len().min(32767) as u16)
    }

    /// Whether a packet of `msn` may come: not complete already, and inside the message window.
    pub(super) fn expects(&self, msn: Msn, window: u16) -> bool {
        msn.distance_from(self.lowest) < u32::from(window)
    }

    /// Whether a packet goes with those of its message that came before it: every packet of a message repeats the
    /// length and the receive (STRM-009).
    pub(super) fn goes_with(&self, msn: Msn, rqsn: Option<Rqsn>, len: u32) -> bool {
        let index = msn.distance_from(self.lowest) as usize;
        self.incoming.get(index).is_none_or(|message| {
            message.packets == 0 || message.rqsn == rqsn && message.len == len
        })
    }

    /// Counts a first arrival. Returns the receives that are now complete, with their lengths, in order.
    ///
    /// # Errors
    /// [`Inconsistent`] when the Sends of the stream are not numbered in the order of its messages (STRM-007).
    pub(super) fn on_arrival(
        &mut self,
        msn: Msn,
        rqsn: Option<Rqsn>,
        len: u32,
        packets: u32,
    ) -> Result<Vec<(Receive, u32)>, Inconsistent> {
        let index = msn.distance_from(self.lowest) as usize;
        if self.incoming.len() <= index {
            self.incoming.resize(index + 1, RxMessage::default());
        }
        if let Some(message) = self.incoming.get_mut(index) {
            *message = RxMessage {
                packets,
                arrived: message.arrived + 1,
                len,
                rqsn,
            };
        }
        let mut complete = Vec::new();
        while let Some(message) = self.incoming.front().copied() {
            if message.packets == 0 || message.arrived < message.packets {
                break;
            }
            self.incoming.pop_front();
            self.lowest = self.lowest.add(1);
            if let Some(rqsn) = message.rqsn {
                if rqsn != self.first_receive {
                    return Err(Inconsistent);
                }
                self.first_receive = self.first_receive.add(1);
                complete.extend(
                    self.receives
                        .pop_front()
                        .map(|receive| (receive, message.len)),
                );
            }
        }
        Ok(complete)
    }

    /// Takes all receives back. They stay promised, so that the limit does not recede (STRM-031).
    pub(super) fn take_receives(&mut self) -> VecDeque<Receive> {
        self.first_receive = self.rq_limit();
        std::mem::take(&mut self.receives)
    }
}
