//! The end of a connection: in order, or by a failure.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use metaroce_wire::metaroce::{Body, Close, CloseAck, Opcode};
use metaroce_wire::serial::{Msn, Psn};

use super::config::Misuse;
use super::connection::{Connection, LINGER, Shared, State};
use super::control::{Control, Purpose, Turn};
use super::emit::sent_at;
use super::event::{Event, Status};
use super::stream::Stream;
use super::transitions::{Event as Change, StreamState, step};

/// Reason of CLOSE: an error.
const ERROR: u16 = 1;
/// A peer from which nothing has come for so long after CLOSE is taken to have answered it, ns (CONN-050).
const SILENCE: u64 = LINGER;

impl Connection {
    pub(super) fn close(&mut self, now: u64) -> Result<(), Misuse> {
        match self.state {
            State::Established | State::Connected => {
                step(&mut self.state, Change::Close);
                self.advance_close(now);
                Ok(())
            }
            State::Closing => Ok(()),
            _ => Err(Misuse::Closing),
        }
    }

    /// Ends the connection at once, whatever is under way.
    pub(super) fn abort(&mut self, now: u64, shared: &mut Shared<'_>) -> Result<(), Misuse> {
        if self.state.is_over() {
            return Err(Misuse::Closing);
        }
        let what = (Status::WrFlushErr, "the program has ended the connection");
        self.fail_work(now, what, None, shared);
        Ok(())
    }

    /// Whether no request of this side is under way. Those of a stream that is being reset are until it has been.
    fn is_idle(&self) -> bool {
        let idle = |stream: &Stream| stream.tx.is_empty() && stream.state != StreamState::Resetting;
        self.streams.iter().all(idle)
    }

    fn send_close(&mut self, now: u64) {
        self.close_sent.get_or_insert(now);
        let id = self.next_transaction();
        let cbh = self.header(now, Opcode::CLOSE, id);
        let close = Close {
            reason: self.reason,
            rsvd: 0,
        };
        self.request(now, Purpose::Close, cbh, Body::Close(close));
    }

    /// Sends CLOSE once all work is done (CONN-047).
    fn advance_close(&mut self, now: u64) {
        let sent = self.close_sent.is_some();
        if self.state == State::Closing && self.is_idle() && !sent && !self.peer_closed {
            self.send_close(now);
        }
    }

    pub(super) fn on_close(
        &mut self,
        now: u64,
        (id, plane): (Psn, u8),
        close: &Close,
        shared: &mut Shared<'_>,
    ) {
        if matches!(self.state, State::Opening | State::Confirming) {
            shared.counters.stray += 1;
            return;
        }
        self.close_to_answer = Some((id, close.reason, plane));
        if !std::mem::replace(&mut self.peer_closed, true) && close.reason != ERROR {
            self.drop_unstarted(now, shared);
        }
        if !self.state.is_over() {
            self.reason = close.reason;
        }
        if close.reason == ERROR {
            // The peer has given up: nothing that is under way will be taken any more.
            self.finish_closed(now, Change::PeerError, shared);
        } else {
            self.settle(now, shared);
        }
        self.answer_close(now);
    }

    /// Answers the peer's CLOSE, but not while messages that were begun before it are still under way: with the answer
    /// in hand the peer may forget the connection (CONN-041).
    fn answer_close(&mut self, now: u64) {
        if !self.is_idle() {
            return;
        }
        if let Some((id, reason, plane)) = self.close_to_answer.take() {
            let body = Body::CloseAck(CloseAck { reason, rsvd: 0 });
            self.respond(now, Opcode::CLOSE_ACK, (id, plane), body);
        }
    }

    pub(super) fn on_close_ack(&mut self, now: u64, id: Psn, shared: &mut Shared<'_>) {
        let asked = |purpose| purpose == Purpose::Close;
        if self.requests.answered(id.value(), asked).is_some() {
            self.close_answered = true;
            self.settle(now, shared);
        } else {
            shared.counters.stray += 1;
        }
    }

    /// Ends the connection once either side has closed it and no work is under way.
    pub(super) fn settle(&mut self, now: u64, shared: &mut Shared<'_>) {
        if !self.peer_closed && self.state != State::Closing {
            return;
        }
        self.advance_close(now);
        if self.is_idle() && (self.peer_closed || self.close_answered) {
            self.finish_closed(now, Change::Settled, shared);
        }
    }

    fn finish_closed(&mut self, now: u64, on: Change, shared: &mut Shared<'_>) {
        if self.state.is_over() {
            return;
        }
        self.finish(now, on, None, shared);
        shared.events.push_back(Event::Closed {
            conn: self.handle,
            reason: self.reason,
        });
    }

    fn finish(
        &mut self,
        now: u64,
        on: Change,
        cause: Option<(u16, Msn, Status)>,
        shared: &mut Shared<'_>,
    ) {
        self.end(on);
        self.linger_until = Some(now + LINGER);
        self.arm(now + LINGER);
        self.requests.cancel(|purpose| purpose != Purpose::Close);
        self.flush(cause, shared);
        shared.shares.forget(self.handle);
        self.answer_close(now);
    }

    /// Ends the connection with an error: the work that `cause` names gets `status`, the rest is flushed in order.
    pub(super) fn fail_work(
        &mut self,
        now: u64,
        (status, message): (Status, &str),
        cause: Option<(u16, Msn)>,
        shared: &mut Shared<'_>,
    ) {
        if self.state.is_over() {
            return;
        }
        let connected = !self.tx.is_empty();
        self.requests.clear();
        let flushes = status == Status::WrFlushErr;
        let cause = cause.or_else(|| self.oldest_work().filter(|_| !flushes));
        self.reason = ERROR;
        if connected {
            self.close_sent = None;
            self.send_close(now);
        }
        let cause = cause.map(|(stream, msn)| (stream, msn, status));
        self.finish(now, Change::Error, cause, shared);
        shared.events.push_back(Event::Failed {
            conn: self.handle,
            status,
            message: message.to_owned(),
        });
    }

    pub(super) fn fail(
        &mut self,
        now: u64,
        status: Status,
        message: &str,
        shared: &mut Shared<'_>,
    ) {
        self.fail_work(now, (status, message), None, shared);
    }

    /// Completes all work, then all receives, each in the order in which they were posted.
    fn flush(&mut self, cause: Option<(u16, Msn, Status)>, shared: &mut Shared<'_>) {
        let mut ended = Vec::new();
        let mut fails = cause.is_none();
        let ids: Vec<u16> = self.streams.iter().map(|stream| stream.id).collect();
        for id in ids {
            let of_stream = cause.filter(|(stream, ..)| *stream == id);
            let named = of_stream.map(|(_, msn, status)| (msn, status));
            self.take_work(id, (named, &mut fails), shared, &mut ended);
        }
        ended.sort_by_key(|(kind, order, _)| (*kind, *order));
        let events = ended.into_iter().map(|(.., completion)| completion);
        shared.events.extend(events.map(Event::Completion));
    }

    /// After a CLOSE of the peer no message is begun any more: what is not begun is flushed in the order of posting, as far
    /// as nothing before it on its stream is under way.
    fn drop_unstarted(&mut self, now: u64, shared: &mut Shared<'_>) {
        let mut ended = BinaryHeap::new();
        for stream in self.streams.iter_mut() {
            stream.tx.flush_unstarted();
            ended.extend(stream.tx.ended().map(|order| Reverse((order, stream.id))));
        }
        while let Some(Reverse((_, id))) = ended.pop() {
            self.report_one(now, id, shared);
            let next = self.streams.get(id).and_then(|stream| stream.tx.ended());
            ended.extend(next.map(|order| Reverse((order, id))));
        }
    }

    // ---- requests -----------------------------------------------------------------------------------------------

    /// Repeats requests that are not answered, and gives up those that were repeated often enough.
    pub(super) fn on_request_timers(&mut self, now: u64, shared: &mut Shared<'_>) {
        if self.requests.deadline().is_none_or(|due| now < due) {
            return;
        }
        self.stop_closing(now, shared);
        let planes = self.planes.len() as u8;
        let was_over = self.state.is_over();
        for turn in self.requests.on_timer(now, planes) {
            // One request without an answer has ended the connection, and the others with it.
            if self.state.is_over() != was_over {
                break;
            }
            match turn {
                Turn::Repeat(id, bytes, times, plane) => {
                    let bytes = sent_at(now, bytes, self.settings.local.ip(), self.peer);
                    self.control.push_back(Control {
                        bytes,
                        port: self.settings.port(times),
                        plane,
                        request: Some(id),
                    });
                }
                Turn::GiveUp(purpose) => self.give_up_request(now, purpose, shared),
            }
        }
    }

    fn give_up_request(&mut self, now: u64, purpose: Purpose, shared: &mut Shared<'_>) {
        match purpose {
            // The peer still has work to finish: it is asked anew.
            Purpose::Close if self.reason != ERROR => self.send_close(now),
            Purpose::Close => {
                self.close_answered = true;
                self.settle(now, shared);
            }
            Purpose::Credit(id) => self.no_credit(now, id, shared),
            Purpose::StreamOpen(id) => self.stream_unanswered(now, id, shared),
            Purpose::Retire(path) => {
                self.path_given_up(path);
                self.fail(now, Status::RetryExcErr, "the peer gave no answer", shared);
            }
            Purpose::Open | Purpose::Confirm | Purpose::StreamReset(_) => {
                self.fail(now, Status::RetryExcErr, "the peer gave no answer", shared);
            }
        }
    }

    /// Takes CLOSE as answered when nothing has come from the peer for long: it may have forgotten the connection and
    /// given its number to another one.
    fn stop_closing(&mut self, now: u64, shared: &mut Shared<'_>) {
        let Some(sent) = self.close_sent else { return };
        if now >= sent.max(self.heard) + SILENCE && self.requests.has(Purpose::Close) {
            self.requests.cancel(|purpose| purpose == Purpose::Close);
            self.close_answered = true;
            self.settle(now, shared);
        }
    }
}
