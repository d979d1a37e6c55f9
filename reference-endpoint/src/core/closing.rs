//! The end of a connection: in order, or by a failure.

use metaroce_wire::metaroce::{Body, Close, CloseAck, Opcode};
use metaroce_wire::serial::{Msn, Psn};

use super::config::Misuse;
use super::connection::{Connection, Shared, State};
use super::control::Purpose;
use super::event::{Event, Status, WorkKind};
use super::transitions::{Event as Change, step};

/// Reason of CLOSE: an error.
const ERROR: u16 = 1;
/// How long a closed connection still answers, ns: three times the largest retransmission timeout, so that the peer's
/// repetitions of CLOSE find somebody.
const LINGER: u64 = 3 * super::tx_path::MOST_RTO;

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

    /// Sends CLOSE once all work is done.
    pub(super) fn advance_close(&mut self, now: u64) {
        let idle = self.streams.values().all(|stream| stream.queue.is_empty());
        if self.state == State::Closing && idle && !self.close_sent && !self.peer_closed {
            self.close_sent = true;
            self.request(
                now,
                Purpose::Close,
                Opcode::CLOSE,
                Body::Close(Close {
                    reason: self.reason,
                    rsvd: 0,
                }),
            );
        }
    }

    pub(super) fn on_close(&mut self, now: u64, id: Psn, close: &Close, shared: &mut Shared<'_>) {
        if matches!(self.state, State::Opening | State::Confirming) {
            return;
        }
        self.close_to_answer = Some((id, close.reason));
        if !self.peer_closed {
            self.peer_closed = true;
            self.drop_unstarted(shared);
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
    /// in hand the peer may forget the connection.
    fn answer_close(&mut self, now: u64) {
        let begun = self.streams.values().any(|stream| !stream.queue.is_empty());
        if begun {
            return;
        }
        if let Some((id, reason)) = self.close_to_answer.take() {
            let answer = CloseAck { reason, rsvd: 0 };
            self.respond(now, Opcode::CLOSE_ACK, id, Body::CloseAck(answer));
        }
    }

    pub(super) fn on_close_ack(&mut self, now: u64, id: Psn, shared: &mut Shared<'_>) {
        if self
            .requests
            .answered(id.value(), |p| p == Purpose::Close)
            .is_some()
        {
            self.close_answered = true;
            self.settle(now, shared);
        }
    }

    /// Ends the connection once either side has closed it and no work is under way.
    pub(super) fn settle(&mut self, now: u64, shared: &mut Shared<'_>) {
        self.advance_close(now);
        let idle = self.streams.values().all(|stream| stream.queue.is_empty());
        if idle && (self.peer_closed || self.close_answered) {
            self.finish_closed(now, Change::Settled, shared);
        }
    }

    fn finish_closed(&mut self, now: u64, on: Change, shared: &mut Shared<'_>) {
        if self.state.is_over() {
            return;
        }
        self.finish(now, on, shared);
        shared.events.push_back(Event::Closed {
            conn: self.handle,
            reason: self.reason,
        });
    }

    fn finish(&mut self, now: u64, on: Change, shared: &mut Shared<'_>) {
        self.end(on);
        self.linger_until = Some(now + LINGER);
        self.requests.cancel(|purpose| purpose != Purpose::Close);
        self.flush(None, shared);
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
        let cause = cause.or_else(|| self.oldest_work());
        self.flush(cause.map(|(stream, msn)| (stream, msn, status)), shared);
        let message = message.to_owned();
        shared.events.push_back(Event::Failed {
            conn: self.handle,
            status,
            message,
        });
        self.reason = ERROR;
        if connected && !self.close_sent {
            self.close_sent = true;
            self.request(
                now,
                Purpose::Close,
                Opcode::CLOSE,
                Body::Close(Close {
                    reason: ERROR,
                    rsvd: 0,
                }),
            );
        }
        self.finish(now, Change::Error, shared);
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

    fn oldest_work(&self) -> Option<(u16, Msn)> {
        let fronts = self
            .streams
            .values()
            .filter_map(|stream| Some((stream.id, stream.queue.front()?)));
        fronts
            .min_by_key(|(_, message)| message.order)
            .map(|(stream, message)| (stream, message.msn))
    }

    /// Completes all work and all receives in the order in which they were posted.
    fn flush(&mut self, cause: Option<(u16, Msn, Status)>, shared: &mut Shared<'_>) {
        let mut ended = Vec::new();
        for stream in self.streams.values_mut() {
            for message in stream.queue.drain(..) {
                let is_cause = cause.filter(|(id, msn, _)| *id == stream.id && *msn == message.msn);
                let status = is_cause.map_or(Status::WrFlushErr, |(_, _, status)| status);
                ended.push((
                    message.order,
                    stream.id,
                    message.wr_id,
                    message.kind,
                    status,
                ));
            }
            for receive in stream.take_receives() {
                let status = if receive.overrun {
                    Status::LocLenErr
                } else {
                    Status::WrFlushErr
                };
                ended.push((
                    receive.order,
                    stream.id,
                    receive.wr_id,
                    WorkKind::Recv,
                    status,
                ));
            }
        }
        ended.sort_by_key(|(order, ..)| *order);
        for (_, stream, wr_id, kind, status) in ended {
            let conn = self.handle;
            shared.events.push_back(Event::Completion {
                conn,
                stream,
                wr_id,
                kind,
                status,
                byte_len: 0,
            });
        }
    }

    /// After a CLOSE of the peer no message is begun any more.
    fn drop_unstarted(&mut self, shared: &mut Shared<'_>) {
        self.streams
            .values_mut()
            .for_each(|stream| stream.flush_unstarted());
        let ids: Vec<u16> = self.streams.keys().copied().collect();
        ids.into_iter().for_each(|id| self.report_ended(id, shared));
    }
}
