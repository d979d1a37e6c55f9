//! Data going out: spread over the paths packet by packet, repaired on the path that lost it.

use metaroce_wire::metaroce::{
    AckFlags, AckHeader, Body, Cbh, Flags, MFlags, Msgh, Nak, NakCode, Opcode, PathProbe,
    PathProbeAck, Sack, Send, Tagh, Write,
};
use metaroce_wire::serial::Psn;

use super::config::{Ecn, Transmit};
use super::connection::{Connection, Shared, State};
use super::credit::CREDIT_PAUSE;
use super::emit::{emit, emit_into};
use super::event::{Event, Status, WorkKind};
use super::stream::TxMessage;
use super::tx_path::{Due, Sent};

impl Connection {
    /// The next datagram to send.
    pub(super) fn poll_transmit(
        &mut self,
        now: u64,
        shared: &mut Shared<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if let Some((port, bytes)) = self.control.pop_front() {
            self.requests.left(now, &bytes);
            out.clear();
            out.extend_from_slice(&bytes);
            return Some(self.transmit(port, Ecn::NotEct));
        }
        if let Some(transmit) = self.poll_ack(now, out) {
            return Some(transmit);
        }
        if !matches!(
            self.state,
            State::Connected | State::Established | State::Closing
        ) {
            return None;
        }
        self.poll_lost(now, shared, out)
            .or_else(|| self.poll_new(now, shared, out))
    }

    fn poll_lost(
        &mut self,
        now: u64,
        shared: &mut Shared<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        for path in 0..self.tx.len() {
            let Some((psn, sent)) = self.tx[path].next_lost() else {
                continue;
            };
            let message = *self.streams.get(&sent.stream)?.message(sent.msn)?;
            let stamp = self.tx[path].send_again(now, psn);
            shared.counters.retransmissions += 1;
            let flags = Flags::RTX.with(Flags::AR);
            self.emit_data(
                (path, psn, stamp, flags),
                sent.stream,
                &message,
                sent.index,
                shared,
                out,
            );
            return Some(self.transmit(self.tx[path].port, Ecn::Ect0));
        }
        None
    }

    fn poll_new(
        &mut self,
        now: u64,
        shared: &mut Shared<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let paths = self.tx.len();
        let path = (0..paths)
            .map(|i| (self.next_path + i) % paths)
            .find(|&path| self.tx[path].has_room())?;
        let stream = self.next_sendable(now)?;
        let window = self.agreed().msg_window;
        let message = self.streams.get_mut(&stream)?.sendable(window)?;
        let index = message.sent;
        message.sent += 1;
        let message = *message;
        // Nothing may follow on some of the paths, so that they ask for their acknowledgment themselves.
        let near_end = (message.packets - index) as usize <= paths;
        let asks = near_end || self.tx[path].last_room();
        let flags = if asks { Flags::AR } else { Flags(0) };
        let (psn, stamp) = self.tx[path].send_new(now, stream, message.msn, index);
        self.next_path = (path + 1) % paths;
        self.next_stream = stream.wrapping_add(1);
        self.emit_data(
            (path, psn, stamp, flags),
            stream,
            &message,
            index,
            shared,
            out,
        );
        Some(self.transmit(self.tx[path].port, Ecn::Ect0))
    }

    /// The next stream, in turn, that has a packet to send and may send it. Those that lack credit ask for it.
    fn next_sendable(&mut self, now: u64) -> Option<u16> {
        let window = self.agreed().msg_window;
        let next = self.next_stream;
        let mut found = None;
        let mut starving = Vec::new();
        for stream in self.streams.values_mut().filter(|stream| stream.is_known()) {
            let Some(message) = stream.sendable(window).copied() else {
                continue;
            };
            if stream.has_credit(&message) {
                let turn = (stream.id < next, stream.id);
                if found.is_none_or(|best| turn < best) {
                    found = Some(turn);
                }
            } else if stream
                .asked_at
                .is_none_or(|asked| asked + CREDIT_PAUSE <= now)
            {
                starving.push(stream.id);
            }
        }
        for id in starving {
            self.ask_credit(now, id);
        }
        found.map(|(_, id)| id)
    }

    fn emit_data(
        &self,
        (path, psn, timestamp, flags): (usize, Psn, u32, Flags),
        stream: u16,
        message: &TxMessage,
        index: u32,
        shared: &Shared<'_>,
        out: &mut Vec<u8>,
    ) {
        let size = usize::from(self.agreed().payload_size);
        let len = message.buffer.len;
        let offset = index as usize * size;
        let piece = size.min(len - offset);
        // The buffer was inside its region when the work was posted, and regions are never taken away.
        let payload = shared
            .memory
            .slice(&message.buffer, offset, piece)
            .unwrap_or_default();
        let mut mflags = MFlags(0);
        if offset == 0 {
            mflags = mflags.with(MFlags::SOM);
        }
        if index + 1 == message.packets {
            mflags = mflags.with(MFlags::EOM);
        }
        let msgh = Msgh {
            stream,
            rqsn: message.rqsn,
            mflags,
            msn: message.msn,
            offset: offset as u32,
            len: len as u32,
        };
        let (opcode, body) = if message.kind == WorkKind::Send {
            (Opcode::SEND, Body::Send(Send { msgh, payload }))
        } else {
            let (va, rkey) = message.remote;
            (
                Opcode::WRITE,
                Body::Write(Write {
                    msgh,
                    tagh: Tagh { va, rkey, imm: 0 },
                    payload,
                }),
            )
        };
        let cbh = Cbh {
            flags,
            path: path as u8,
            psn,
            timestamp,
            ..Cbh::new(opcode, self.theirs.scid)
        };
        emit_into(out, cbh, body, self.local, self.peer);
    }

    pub(super) fn on_ack(
        &mut self,
        now: u64,
        cbh: &Cbh,
        header: &AckHeader,
        sack: &Sack,
        shared: &mut Shared<'_>,
    ) {
        let Some(tx) = self
            .tx
            .get_mut(usize::from(cbh.path))
            .filter(|_| cbh.epoch == 0)
        else {
            shared.counters.bad_acks += 1;
            return;
        };
        let follows = Some(header.timestamp_echo)
            .filter(|_| header.ack_flags & AckFlags::ECHO_VALID.0 != 0)
            .and_then(|echo| tx.transmission(echo));
        let Some(newly) = tx.on_report(now, cbh.psn, sack, follows) else {
            shared.counters.bad_acks += 1;
            return;
        };
        tx.on_ce_count(now, header.ce_count);
        if let Some(follows) = follows.filter(|_| header.ack_delay != u16::MAX) {
            tx.on_answer(now, follows, u64::from(header.ack_delay) * 64);
        }
        if let Some(stream) = self.streams.get_mut(&header.stream) {
            stream.on_credit(header.rq_limit);
        }
        self.end_starvation(header.stream);
        self.complete(now, &newly, shared);
    }

    pub(super) fn on_probe_ack(
        &mut self,
        now: u64,
        cbh: &Cbh,
        ack: &PathProbeAck,
        shared: &mut Shared<'_>,
    ) {
        let tx = self
            .tx
            .get_mut(usize::from(cbh.path))
            .filter(|_| cbh.epoch == 0);
        let report = tx.and_then(|tx| {
            // Without the probe that it answers, nothing can be concluded from what it lacks.
            let follows = tx.transmission(ack.timestamp_echo)?;
            let newly = tx.on_report(now, ack.cum_psn, &ack.sack, Some(follows))?;
            tx.on_answer(now, follows, 0);
            Some(newly)
        });
        match report {
            Some(newly) => self.complete(now, &newly, shared),
            None => shared.counters.bad_acks += 1,
        }
    }

    fn complete(&mut self, now: u64, newly: &[Sent], shared: &mut Shared<'_>) {
        for sent in newly {
            if let Some(stream) = self.streams.get_mut(&sent.stream) {
                stream.on_acked(sent.msn);
            }
            self.report_ended(sent.stream, shared);
        }
        self.settle(now, shared);
    }

    /// Reports the work of a stream that has ended.
    pub(super) fn report_ended(&mut self, id: u16, shared: &mut Shared<'_>) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        for message in stream.take_ended() {
            let (status, byte_len) = if message.flushed {
                (Status::WrFlushErr, 0)
            } else {
                (Status::Success, message.buffer.len as u32)
            };
            shared.events.push_back(Event::Completion {
                conn: self.handle,
                stream: id,
                wr_id: message.wr_id,
                kind: message.kind,
                status,
                byte_len,
            });
        }
    }

    pub(super) fn on_nak(&mut self, now: u64, cbh: &Cbh, nak: &Nak, shared: &mut Shared<'_>) {
        shared.counters.naks_received += 1;
        let tx = self
            .tx
            .get(usize::from(cbh.path))
            .filter(|_| cbh.epoch == 0);
        let refused = tx.and_then(|tx| tx.outstanding(nak.offending_psn));
        let named = |sent: &&Sent| sent.stream == nak.stream && sent.msn == nak.msn;
        let Some(sent) = refused.filter(named).copied() else {
            shared.counters.bad_acks += 1;
            return;
        };
        let (status, message) = match nak.code {
            NakCode::REM_ACCESS => (Status::RemAccessErr, "the peer refused an access"),
            NakCode::LENGTH | NakCode::REM_INV_REQ => {
                (Status::RemInvReqErr, "the peer refused a request")
            }
            // Other refusals are hints: the packet is repaired or given up like any other.
            _ => return,
        };
        self.fail_work(
            now,
            (status, message),
            Some((sent.stream, sent.msn)),
            shared,
        );
    }

    pub(super) fn on_path_timers(&mut self, now: u64, shared: &mut Shared<'_>) {
        if self.state.is_over() {
            return;
        }
        for path in 0..self.tx.len() {
            match self.tx[path].on_timer(now) {
                None => {}
                Some(Due::Probe) => {
                    shared.counters.probes += 1;
                    let transaction = Psn::new(self.next_transaction());
                    let tx = &mut self.tx[path];
                    let (port, highest_psn, timestamp) =
                        (tx.port, tx.highest_sent(), tx.send_probe(now));
                    let cbh = Cbh {
                        path: path as u8,
                        psn: transaction,
                        timestamp,
                        ..Cbh::new(Opcode::PATH_PROBE, self.theirs.scid)
                    };
                    let body = Body::PathProbe(PathProbe { highest_psn });
                    self.control
                        .push_back((port, emit(cbh, body, self.local, self.peer)));
                }
                Some(Due::Timeout) => shared.counters.timeouts += 1,
                Some(Due::Failure) => {
                    self.fail(now, Status::RetryExcErr, "a path has failed", shared);
                    return;
                }
            }
        }
    }
}
