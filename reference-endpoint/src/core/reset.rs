//! The end of a stream alone: STREAM_RESET, what it flushes, and when the number is free again.

use metaroce_wire::metaroce::{Body, Features, NakCode, Opcode, StreamReset, StreamResetAck};
use metaroce_wire::serial::{Msn, Psn};

use super::config::Misuse;
use super::connection::{Connection, LINGER, NEVER, Shared};
use super::control::Purpose;
use super::event::{Completion, Event, Status, WorkKind};
use super::transitions::{StreamEvent, StreamState, step};

/// STREAM_RESET without a NAK that led to it.
pub(super) const NO_CODE: (NakCode, Msn) = (NakCode(0), Msn::new(0));

impl Connection {
    /// Ends a stream for a reason of this side; the connection goes on where RESET has been agreed (ERR-029).
    pub(super) fn fail_stream(
        &mut self,
        now: u64,
        id: u16,
        cause: Option<(Msn, Status)>,
        shared: &mut Shared<'_>,
    ) {
        if self.has(Features::RESET) {
            self.reset_stream(now, id, NO_CODE, cause, shared);
        } else {
            let status = cause.map_or(Status::WrFlushErr, |(_, status)| status);
            let cause = cause.map(|(msn, _)| (id, msn));
            let message = "a stream has failed, and resets were not agreed";
            self.fail_work(now, (status, message), cause, shared);
        }
    }

    /// The program ends a stream.
    pub(super) fn end_stream(
        &mut self,
        now: u64,
        id: u16,
        shared: &mut Shared<'_>,
    ) -> Result<(), Misuse> {
        let stream = self.streams.get(id).ok_or(Misuse::NoStream(id))?;
        if !self.is_up() {
            return Err(Misuse::Closing);
        }
        if matches!(stream.state, StreamState::Open | StreamState::Opening) {
            self.fail_stream(now, id, None, shared);
        }
        Ok(())
    }

    /// Sends STREAM_RESET and flushes the stream: `cause` names the message that is at fault and its status.
    pub(super) fn reset_stream(
        &mut self,
        now: u64,
        id: u16,
        (code, msn): (NakCode, Msn),
        cause: Option<(Msn, Status)>,
        shared: &mut Shared<'_>,
    ) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        if !matches!(stream.state, StreamState::Open | StreamState::Opening) {
            return;
        }
        let opening = stream.state == StreamState::Opening;
        step(&mut stream.state, StreamEvent::Reset);
        self.send_reset(now, id, (code, msn));
        if opening {
            self.first_has_ended(id, shared);
        }
        let status = cause.map_or(Status::WrFlushErr, |(_, status)| status);
        self.flush_stream(id, cause, status, shared);
        self.settle(now, shared);
    }

    /// A STREAM_OPEN has stayed unanswered: whatever the peer has made of it ends.
    pub(super) fn reset_unanswered(&mut self, now: u64, id: u16, shared: &mut Shared<'_>) {
        if let Some(stream) = self.streams.get_mut(id) {
            step(&mut stream.state, StreamEvent::NoAnswer);
            self.send_reset(now, id, NO_CODE);
            self.flush_stream(id, None, Status::RetryExcErr, shared);
        }
        self.settle(now, shared);
    }

    fn send_reset(&mut self, now: u64, stream: u16, (code, msn): (NakCode, Msn)) {
        let id = self.next_transaction();
        let cbh = self.header(now, Opcode::STREAM_RESET, id);
        let body = StreamReset {
            stream,
            code,
            rsvd_a: 0,
            msn,
            rsvd_b: 0,
        };
        self.request(
            now,
            Purpose::StreamReset(stream),
            cbh,
            Body::StreamReset(body),
        );
    }

    /// Completes the work of a stream in the order in which it was posted, then its receives, and forgets what else it
    /// has under way (STRM-037, ERR-019).
    pub(super) fn flush_stream(
        &mut self,
        id: u16,
        cause: Option<(Msn, Status)>,
        status: Status,
        shared: &mut Shared<'_>,
    ) {
        self.requests
            .cancel(|p| p == Purpose::Credit(id) || p == Purpose::StreamOpen(id));
        self.forget_moved(id);
        let mut completions = Vec::new();
        let mut fails = cause.is_none();
        self.take_work(id, (cause, &mut fails), shared, &mut completions);
        completions.sort_by_key(|(kind, order, _)| (*kind, *order));
        let events = completions.into_iter().map(|(.., completion)| completion);
        shared.events.extend(events.map(Event::Completion));
        shared.events.push_back(Event::StreamEnded {
            conn: self.handle,
            stream: id,
            status,
        });
    }

    /// Takes everything from a stream, as completions with what sorts them: work or receive, and the order of posting. One
    /// message has a status of its own: the one that `cause` names, or the first that has failed by itself while `fails`.
    pub(super) fn take_work(
        &mut self,
        id: u16,
        (mut cause, fails): (Option<(Msn, Status)>, &mut bool),
        shared: &mut Shared<'_>,
        out: &mut Vec<(u8, u64, Completion)>,
    ) {
        let conn = self.handle;
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        let ended = |wr_id, kind, status| Completion {
            conn,
            stream: id,
            wr_id,
            kind,
            status,
            byte_len: 0,
            imm: None,
            invalidated: None,
            solicited: false,
        };
        let mut over = Vec::new();
        for message in stream.tx.drain() {
            let kind = message.work.op.kind();
            if message.is_operation_under_way() {
                over.push(kind);
            }
            // What was never to be sent has the number of the one behind it: only the first is meant.
            let named = cause.take_if(|(msn, _)| *msn == message.msn);
            let overlong = message.overlong.then_some(Status::LocLenErr);
            let flushed = |status: &Status| *status == Status::WrFlushErr;
            let own = overlong.or(message.failed.filter(|status| !flushed(status)));
            let own = own.filter(|_| std::mem::take(fails));
            let status = named.map(|(_, status)| status).or(own);
            let status = status.unwrap_or(Status::WrFlushErr);
            out.push((0, message.order, ended(message.work.wr_id, kind, status)));
        }
        let promised = stream.rx.promised();
        for receive in stream.rx.take_receives() {
            let status = if receive.overrun {
                Status::LocLenErr
            } else {
                Status::WrFlushErr
            };
            let completion = ended(receive.wr_id, WorkKind::Recv, status);
            out.push((1, receive.order, completion));
        }
        let mut held = (0, 0);
        for opcode in stream.rx.clear() {
            count_held(opcode, &mut held);
        }
        let srq = stream.config.srq.take();
        if let Some(rare) = stream.rare_mut() {
            for answer in rare.answers.drain(..).filter(|a| a.sent < a.packets) {
                // A Read whose answer has begun still stands in the row of what is to be done, and is counted there.
                if answer.source != super::stream::Source::Memory {
                    held.1 += 1;
                }
            }
            rare.refusals.clear();
            rare.starving = false;
        }
        if let Some(srq) = srq {
            shared.srqs.detach(srq, (conn, id), promised);
        }
        // Until the peer has reset it too, the peer holds them.
        let resetting = stream.state == StreamState::Resetting;
        if resetting && !over.is_empty() {
            stream.make_rare().over.append(&mut over);
        }
        self.reads_held = self.reads_held.saturating_sub(held.0);
        self.atomics_held = self.atomics_held.saturating_sub(held.1);
        over.into_iter().for_each(|kind| self.operation_over(kind));
    }

    /// Takes STREAM_RESET: nothing of the stream is placed any more, and that is what the answer says (ERR-010, ERR-011).
    pub(super) fn on_stream_reset(
        &mut self,
        now: u64,
        (id, plane): (Psn, u8),
        reset: &StreamReset,
        shared: &mut Shared<'_>,
    ) {
        if !self.has(Features::RESET) || !self.is_up() {
            shared.counters.misdirected += 1;
            return;
        }
        if !self.answers.answers_again(now, id) {
            let most = self.most_answers();
            if !self.answers.has_room(now, most) {
                shared.counters.unanswered += 1;
                return;
            }
            let state = self.streams.get(reset.stream).map(|stream| stream.state);
            match state {
                Some(StreamState::Open | StreamState::Opening) => {
                    self.reset_by_peer(now, reset, shared);
                }
                Some(StreamState::Resetting) => {
                    self.was_reset(now, reset.stream, StreamEvent::StreamReset);
                }
                _ => {}
            }
            self.answers.add_reset(now, id, reset.stream);
        }
        let answer = StreamResetAck {
            stream: reset.stream,
            rsvd: 0,
        };
        let body = Body::StreamResetAck(answer);
        self.respond(now, Opcode::STREAM_RESET_ACK, (id, plane), body);
        self.settle(now, shared);
    }

    fn reset_by_peer(&mut self, now: u64, reset: &StreamReset, shared: &mut Shared<'_>) {
        let Some(stream) = self.streams.get_mut(reset.stream) else {
            return;
        };
        let opening = stream.state == StreamState::Opening;
        step(&mut stream.state, StreamEvent::StreamReset);
        stream.make_rare().reset_at = now;
        self.release(now, reset.stream);
        if opening {
            self.first_has_ended(reset.stream, shared);
        }
        self.flush_stream(reset.stream, None, Status::WrFlushErr, shared);
    }

    pub(super) fn on_stream_reset_ack(
        &mut self,
        now: u64,
        id: Psn,
        ack: &StreamResetAck,
        shared: &mut Shared<'_>,
    ) {
        let purpose = Purpose::StreamReset(ack.stream);
        if self
            .requests
            .answered(id.value(), |p| p == purpose)
            .is_none()
        {
            shared.counters.stray += 1;
            return;
        }
        let state = self.streams.get(ack.stream).map(|stream| stream.state);
        if state == Some(StreamState::Resetting) {
            self.was_reset(now, ack.stream, StreamEvent::StreamResetAck);
            self.settle(now, shared);
        }
    }

    /// The stream has been reset for this side: what was under way on it is so no longer.
    fn was_reset(&mut self, now: u64, id: u16, on: StreamEvent) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        step(&mut stream.state, on);
        let rare = stream.make_rare();
        rare.reset_at = now;
        let over = std::mem::take(&mut rare.over);
        over.into_iter().for_each(|kind| self.operation_over(kind));
        self.release(now, id);
    }

    /// Lets go the packets of a stream that were held: each is filled at once (ERR-033).
    fn release(&mut self, now: u64, stream: u16) {
        for path in 0..self.tx.len() as u16 {
            self.on_path(now, path, |tx| tx.release(stream));
            self.repair(path);
        }
        self.arm(now + LINGER);
    }

    // ---- when the number is free again --------------------------------------------------------------------------

    pub(super) fn free_deadline(&self) -> u64 {
        let rests = self
            .streams
            .iter()
            .filter(|stream| stream.state == StreamState::Reset && stream.psns == 0)
            .filter(|stream| !self.requests.has(Purpose::StreamReset(stream.id)));
        let due = rests
            .filter_map(|stream| stream.rare())
            .map(|r| r.reset_at + LINGER);
        due.min().unwrap_or(NEVER)
    }

    /// Forgets streams whose numbers have rested and are on no packet any more (ERR-018).
    pub(super) fn on_free_timer(&mut self, now: u64) {
        if now < self.free_deadline() {
            return;
        }
        let requests = &self.requests;
        self.streams.retain(|stream| {
            let rested = |rare: &super::stream::Rare| rare.reset_at + LINGER <= now;
            let free = stream.state == StreamState::Reset
                && stream.psns == 0
                && stream.rare().is_some_and(rested)
                && !requests.has(Purpose::StreamReset(stream.id));
            if free {
                step(&mut stream.state, StreamEvent::PsnsFree);
            }
            !free
        });
    }
}

/// Counts a Read or an atomic operation that was held for the peer.
fn count_held(opcode: Opcode, held: &mut (u32, u32)) {
    match opcode {
        Opcode::READ_REQ => held.0 += 1,
        Opcode::CMP_SWAP | Opcode::FETCH_ADD => held.1 += 1,
        _ => {}
    }
}
