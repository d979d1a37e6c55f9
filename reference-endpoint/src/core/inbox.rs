//! The receiving side of a stream: receives, the messages on their way in, and what is to be done with them in turn.

use std::collections::VecDeque;

use metaroce_wire::metaroce::Opcode;
use metaroce_wire::serial::{Msn, Psn, Rqsn};

use super::config::Buffer;
use super::lazy_queue::LazyQueue;

/// Receives that are promised at a time, at most (RCV-003).
const MOST_PROMISED: usize = 32_767;

/// A posted receive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Receive {
    pub wr_id: u64,
    pub order: u64,
    pub buffer: Buffer,
    /// The peer has sent a message that is longer.
    pub overrun: bool,
    /// A packet has been placed in it.
    pub begun: bool,
}

/// What a packet says of its message; every packet of a message says the same (STRM-009).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub opcode: Opcode,
    pub rqsn: Option<Rqsn>,
    pub len: u32,
}

/// What else a message brings along.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extras {
    /// Immediate data, or the key to make invalid.
    pub word: u32,
    /// Address and key of an operation that will be answered.
    pub remote: (u64, u32),
    /// Operands of an atomic operation: what to swap or add, and what to compare with.
    pub operands: (u64, u64),
    /// Path, epoch and PSN of the request, and the plane that it came in, should it have to be refused later.
    pub origin: (u8, u8, Psn),
    pub plane: u8,
    /// Whoever waits at this side is to be woken.
    pub solicited: bool,
}

/// A message of which packets have arrived.
#[derive(Debug, Clone, Copy)]
struct Incoming {
    /// None while no packet has arrived.
    shape: Option<Shape>,
    packets: u32,
    arrived: u32,
    /// Those of the packet that came last, once all have come.
    extras: Extras,
}

impl Incoming {
    /// What it is, when it has come as a whole.
    fn whole(&self) -> Option<Shape> {
        self.shape.filter(|_| self.arrived == self.packets)
    }
}

/// What is to be done with a message when all before it are complete.
#[derive(Debug, Clone, Copy)]
pub(super) struct Action {
    pub msn: Msn,
    pub shape: Shape,
    pub extras: Extras,
}

/// Why a packet cannot go with what its stream has shown before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Inconsistent;

/// What a message number is to the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// A packet of it may be placed.
    Fits,
    /// It is complete already, or further ahead than agreed (MEM-011).
    OutsideWindow,
    /// Its packets before this one said something else (MEM-010).
    Contradicts,
}

/// Where a receive stands.
#[derive(Debug, Clone, Copy)]
pub(super) enum Slot {
    /// It is there.
    Ready(Receive),
    /// It was promised and is not there, or not bound yet.
    Empty,
    /// It was never promised, or a message has consumed it (RCV-008).
    Unpromised,
}

/// Messages of a stream that have begun to arrive, and what is to be done.
#[derive(Default)]
struct Busy {
    incoming: VecDeque<Incoming>,
    actions: VecDeque<Action>,
    /// Actions that consume a receive.
    consuming: u16,
}

/// The receiving side of a stream.
pub(super) struct Inbox {
    /// The first message that has not arrived as a whole.
    lowest: Msn,
    /// By RQSN from `first` on; a slot without receive is promised and not filled.
    slots: LazyQueue<Option<Receive>>,
    /// Slots without receive.
    empty: u32,
    first: Rqsn,
    /// The limit that the peer was told last.
    reported: Rqsn,
    /// Receives that messages have consumed, modulo 2^32.
    consumed: u32,
    busy: Option<Box<Busy>>,
}

impl Inbox {
    pub(super) fn new(first_msn: Msn, first_rqsn: Rqsn) -> Self {
        Self {
            lowest: first_msn,
            slots: LazyQueue::new(),
            empty: 0,
            first: first_rqsn,
            reported: first_rqsn,
            consumed: 0,
            busy: None,
        }
    }

    // ---- receives -----------------------------------------------------------------------------------------------

    /// Adds a receive: it gets the lowest number that has none (RCV-001).
    pub(super) fn post(&mut self, receive: Receive) {
        if self.empty == 0 {
            self.slots.push_back(Some(receive));
        } else if let Some(slot) = self.slots.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some(receive);
            self.empty -= 1;
        }
    }

    /// Receives that are posted and not consumed.
    pub(super) fn posted(&self) -> usize {
        self.slots.len() - self.empty as usize
    }

    /// Whether the peer has been told of everything that there is.
    pub(super) fn has_news(&self, promised: bool) -> bool {
        self.limit(promised) != self.reported
    }

    /// Whether the peer has no credit left, as far as it was told.
    pub(super) fn is_used_up(&self) -> bool {
        self.reported.precedes_or_is(self.first)
    }

    /// Promises so many receives of a shared queue.
    pub(super) fn promise(&mut self, more: usize) {
        self.slots.extend(std::iter::repeat_n(None, more));
        self.empty += more as u32;
    }

    /// Binds a receive to a number that was promised.
    pub(super) fn bind(&mut self, rqsn: Rqsn, receive: Receive) {
        let index = usize::from(rqsn.distance_from(self.first));
        if let Some(slot @ None) = self.slots.get_mut(index) {
            *slot = Some(receive);
            self.empty -= 1;
        }
    }

    /// Receives that are promised and not bound.
    pub(super) fn promised(&self) -> usize {
        self.empty as usize
    }

    /// Takes away the latest receive with this number that no packet has reached. Its number goes to the next one that is
    /// posted; until then the peer is told of none from there on that it does not know of (RCV-004).
    pub(super) fn withdraw(&mut self, wr_id: u64) -> Option<Receive> {
        let free = |slot: &Option<Receive>| {
            slot.is_some_and(|receive| receive.wr_id == wr_id && !receive.begun)
        };
        let at = self.slots.iter().rposition(free)?;
        let receive = self.slots.get_mut(at)?.take();
        self.empty += 1;
        receive
    }

    /// How many receives the peer has been told of and that are not consumed.
    fn told(&self) -> usize {
        usize::from(self.reported.distance_from(self.first))
    }

    /// Receives that messages have consumed, modulo 2^32.
    pub(super) fn consumed(&self) -> u32 {
        self.consumed
    }

    /// The first RQSN for which there is no receive; what a shared queue has `promised` counts as there.
    fn limit(&self, promised: bool) -> Rqsn {
        let mut count = self.slots.len();
        if self.empty > 0 && !promised {
            let told = self.told();
            let ahead = self.slots.iter().skip(told);
            count = told + ahead.take_while(|slot| slot.is_some()).count();
        }
        self.first.add(count.min(MOST_PROMISED) as u16)
    }

    /// The limit to tell the peer. It never goes back (STRM-031).
    pub(super) fn report(&mut self, promised: bool) -> Rqsn {
        let limit = self.limit(promised);
        if self.reported.precedes(limit) {
            self.reported = limit;
        }
        self.reported
    }

    /// The limit that the peer was told last.
    pub(super) fn reported(&self) -> Rqsn {
        self.reported
    }

    pub(super) fn slot(&self, rqsn: Rqsn) -> Slot {
        if self.reported.precedes_or_is(rqsn) || rqsn.precedes(self.first) {
            return Slot::Unpromised;
        }
        let index = usize::from(rqsn.distance_from(self.first));
        match self.slots.get(index) {
            Some(Some(receive)) => Slot::Ready(*receive),
            _ => Slot::Empty,
        }
    }

    /// The receive with this number, while it is there.
    pub(super) fn receive_mut(&mut self, rqsn: Rqsn) -> Option<&mut Receive> {
        let index = usize::from(rqsn.distance_from(self.first));
        self.slots.get_mut(index)?.as_mut()
    }

    /// Takes all receives back, oldest first. They stay promised, so that the limit does not recede.
    pub(super) fn take_receives(&mut self) -> VecDeque<Receive> {
        let slots = self.slots.take();
        self.empty = 0;
        self.first = self.reported;
        slots.into_iter().flatten().collect()
    }

    // ---- messages -----------------------------------------------------------------------------------------------

    /// Whether a packet of `msn` may come, and goes with those of its message that came before it.
    pub(super) fn standing(&self, msn: Msn, window: u16, shape: &Shape) -> Standing {
        let index = msn.distance_from(self.lowest);
        if index >= u32::from(window) {
            return Standing::OutsideWindow;
        }
        let Some((known, message)) = self
            .incoming(index)
            .and_then(|message| Some((message.shape?, message)))
        else {
            return Standing::Fits;
        };
        if message.arrived == message.packets {
            Standing::OutsideWindow
        } else if known == *shape {
            Standing::Fits
        } else {
            Standing::Contradicts
        }
    }

    fn incoming(&self, index: u32) -> Option<&Incoming> {
        self.busy.as_ref()?.incoming.get(index as usize)
    }

    /// Whether a packet of the message has arrived.
    pub(super) fn is_begun(&self, msn: Msn) -> bool {
        self.incoming(msn.distance_from(self.lowest))
            .is_some_and(|message| message.shape.is_some())
    }

    /// Counts a first arrival of a message of so many packets.
    ///
    /// # Errors
    /// [`Inconsistent`] when the Sends of the stream are not numbered in the order of its messages (STRM-007).
    pub(super) fn on_arrival(
        &mut self,
        msn: Msn,
        shape: Shape,
        packets: u32,
        extras: Extras,
    ) -> Result<(), Inconsistent> {
        let index = msn.distance_from(self.lowest) as usize;
        if index == 0 && packets == 1 && self.busy.as_ref().is_none_or(|b| b.incoming.is_empty()) {
            // The plain case, a short message in its turn, needs no record.
            return self.on_whole(shape, extras);
        }
        let busy = self.busy.get_or_insert_default();
        let blank = Incoming {
            shape: None,
            packets: 0,
            arrived: 0,
            extras: Extras::default(),
        };
        if busy.incoming.len() <= index {
            busy.incoming.resize(index + 1, blank);
        }
        let message = &mut busy.incoming[index];
        // The others say the same.
        if message.shape.is_none() {
            message.shape = Some(shape);
            message.packets = packets;
        }
        message.arrived += 1;
        // The flag for whoever waits is in the last packet only.
        message.extras.solicited |= extras.solicited;
        if message.arrived < packets {
            return Ok(());
        }
        message.extras = Extras {
            solicited: message.extras.solicited,
            ..extras
        };
        while let Some(busy) = &mut self.busy
            && let Some(shape) = busy.incoming.front().and_then(Incoming::whole)
            && let Some(message) = busy.incoming.pop_front()
        {
            self.on_whole(shape, message.extras)?;
        }
        self.trim();
        Ok(())
    }

    /// Notes that the lowest message has arrived as a whole. Only one that asks for something to be done is kept.
    fn on_whole(&mut self, shape: Shape, extras: Extras) -> Result<(), Inconsistent> {
        let msn = self.lowest;
        self.lowest = self.lowest.add(1);
        if shape.rqsn.is_some_and(|rqsn| rqsn != self.next_consumed()) {
            return Err(Inconsistent);
        }
        if shape.opcode != Opcode::WRITE {
            let busy = self.busy.get_or_insert_default();
            busy.consuming += u16::from(shape.rqsn.is_some());
            busy.actions.push_back(Action { msn, shape, extras });
        }
        Ok(())
    }

    /// The receive that the next message to consume one has to name.
    fn next_consumed(&self) -> Rqsn {
        let waiting = self.busy.as_ref().map_or(0, |busy| busy.consuming);
        self.first.add(waiting)
    }

    /// What is to be done next.
    pub(super) fn action(&self) -> Option<&Action> {
        self.busy.as_ref()?.actions.front()
    }

    /// Notes that it is done.
    pub(super) fn done(&mut self) {
        if let Some(busy) = &mut self.busy
            && let Some(action) = busy.actions.pop_front()
        {
            busy.consuming -= u16::from(action.shape.rqsn.is_some());
        }
        self.trim();
    }

    /// Takes the oldest receive, which a message has consumed.
    pub(super) fn consume(&mut self) -> Option<Receive> {
        let slot = self.slots.pop_front()?;
        self.empty -= u32::from(slot.is_none());
        self.first = self.first.add(1);
        self.consumed = self.consumed.wrapping_add(1);
        if self.reported.precedes(self.first) {
            self.reported = self.first;
        }
        slot
    }

    /// Forgets all messages; returns what each of them was.
    pub(super) fn clear(&mut self) -> Vec<Opcode> {
        let Some(busy) = self.busy.take() else {
            return Vec::new();
        };
        let begun = busy.incoming.iter().filter_map(|message| message.shape);
        let whole = busy.actions.iter().map(|action| action.shape);
        begun.chain(whole).map(|shape| shape.opcode).collect()
    }

    /// Gives back the memory of what is over, where it is much.
    fn trim(&mut self) {
        let much = |busy: &Busy| busy.incoming.capacity() > 256;
        if self.busy.as_deref().is_some_and(much) {
            self.rest();
        }
    }

    /// Gives back the memory of what is over.
    pub(super) fn rest(&mut self) {
        let over = |busy: &Busy| busy.incoming.is_empty() && busy.actions.is_empty();
        if self.busy.as_deref().is_some_and(over) {
            self.busy = None;
        }
        self.slots.rest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(wr_id: u64) -> Receive {
        Receive {
            wr_id,
            order: wr_id,
            buffer: Buffer::default(),
            overrun: false,
            begun: false,
        }
    }

    fn send(rqsn: u16, len: u32) -> Shape {
        Shape {
            opcode: Opcode::SEND,
            rqsn: Some(Rqsn::new(rqsn)),
            len,
        }
    }

    fn inbox() -> Inbox {
        Inbox::new(Msn::new(0xff_ffff), Rqsn::new(0xffff))
    }

    #[test]
    fn messages_are_done_in_order_whatever_came_first() {
        let mut inbox = inbox();
        for wr_id in 0..2 {
            inbox.post(receive(wr_id));
        }
        assert_eq!(inbox.report(false), Rqsn::new(1));
        let arrive = |inbox: &mut Inbox, msn, shape, packets| {
            inbox.on_arrival(Msn::new(msn), shape, packets, Extras::default())
        };
        arrive(&mut inbox, 0, send(0, 1), 1).unwrap();
        assert!(inbox.action().is_none(), "the message before it is missing");
        let long = send(0xffff, 2);
        arrive(&mut inbox, 0xff_ffff, long, 2).unwrap();
        assert_eq!(
            inbox.standing(Msn::new(0xff_ffff), 8, &long),
            Standing::Fits
        );
        assert_eq!(
            inbox.standing(Msn::new(0xff_ffff), 8, &send(0xffff, 3)),
            Standing::Contradicts
        );
        assert_eq!(
            inbox.standing(Msn::new(7), 8, &long),
            Standing::OutsideWindow
        );
        arrive(&mut inbox, 0xff_ffff, long, 2).unwrap();
        for (msn, wr_id) in [(0xff_ffff, 0), (0, 1)] {
            assert_eq!(inbox.action().unwrap().msn, Msn::new(msn));
            inbox.done();
            assert_eq!(inbox.consume().unwrap().wr_id, wr_id);
        }
        assert!(inbox.action().is_none());
        assert_eq!(
            inbox.standing(Msn::new(0), 8, &long),
            Standing::OutsideWindow
        );
    }

    #[test]
    fn sends_out_of_order_are_noticed() {
        let mut inbox = inbox();
        inbox.post(receive(0));
        inbox.post(receive(1));
        inbox.report(false);
        let wrong = inbox.on_arrival(Msn::new(0xff_ffff), send(0, 0), 1, Extras::default());
        assert_eq!(wrong, Err(Inconsistent));
    }

    #[test]
    fn a_receive_that_is_taken_away_leaves_its_number_to_the_next() {
        let mut inbox = inbox();
        for wr_id in 0..3 {
            inbox.post(receive(wr_id));
        }
        assert!(matches!(inbox.slot(Rqsn::new(0)), Slot::Unpromised));
        assert_eq!(inbox.report(false), Rqsn::new(2));
        assert_eq!(inbox.withdraw(1).map(|r| r.wr_id), Some(1));
        assert!(matches!(inbox.slot(Rqsn::new(0)), Slot::Empty));
        assert_eq!((inbox.report(false), inbox.posted()), (Rqsn::new(2), 2));
        inbox.post(receive(9));
        assert!(matches!(inbox.slot(Rqsn::new(0)), Slot::Ready(r) if r.wr_id == 9));
        assert_eq!(inbox.report(false), Rqsn::new(2));
    }

    /// RCV-004.
    #[test]
    fn nothing_is_told_of_behind_a_receive_that_was_taken_away() {
        let mut inbox = inbox();
        inbox.post(receive(0));
        assert_eq!(inbox.report(false), Rqsn::new(0));
        inbox.post(receive(1));
        inbox.post(receive(2));
        assert_eq!(inbox.withdraw(1).map(|r| r.wr_id), Some(1));
        assert_eq!((inbox.report(false), inbox.posted()), (Rqsn::new(0), 2));
        inbox.post(receive(9));
        assert_eq!(inbox.report(false), Rqsn::new(2));
    }

    /// RCV-008: neither never promised nor consumed already.
    #[test]
    fn a_number_that_was_consumed_is_nobodys() {
        let mut inbox = inbox();
        inbox.post(receive(0));
        inbox.post(receive(1));
        inbox.report(false);
        inbox.consume();
        assert!(matches!(inbox.slot(Rqsn::new(0xffff)), Slot::Unpromised));
        assert!(matches!(inbox.slot(Rqsn::new(0)), Slot::Ready(_)));
        assert!(matches!(inbox.slot(Rqsn::new(1)), Slot::Unpromised));
    }

    /// MEM-011: a message that has arrived as a whole ahead of its turn takes no more packets.
    #[test]
    fn a_whole_message_takes_no_more_although_it_waits_for_its_turn() {
        let mut inbox = inbox();
        let shape = Shape {
            opcode: Opcode::WRITE,
            rqsn: None,
            len: 2,
        };
        let next = Msn::new(0);
        inbox.on_arrival(next, shape, 2, Extras::default()).unwrap();
        assert_eq!(inbox.standing(next, 8, &shape), Standing::Fits);
        inbox.on_arrival(next, shape, 2, Extras::default()).unwrap();
        assert_eq!(inbox.standing(next, 8, &shape), Standing::OutsideWindow);
    }

    #[test]
    fn flushed_receives_stay_promised() {
        let mut inbox = inbox();
        inbox.post(receive(0));
        inbox.report(false);
        assert_eq!(inbox.take_receives().len(), 1);
        assert_eq!(inbox.report(false), Rqsn::new(0));
    }
}
