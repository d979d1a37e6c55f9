//! Data coming in: checked, placed at once wherever it belongs, and acknowledged.

use metaroce_wire::metaroce::{
    Ack, AckFlags, AckHeader, AckSack, Body, Cbh, Flags, MFlags, Msgh, Nak, NakCode, NakScope,
    Opcode, PathProbe, PathProbeAck, U24,
};
use metaroce_wire::serial::Rqsn;

use super::config::{Ecn, Transmit};
use super::connection::{Connection, Shared};
use super::emit::{emit, emit_into};
use super::event::{Event, Status, WorkKind};
use super::rx_path::{Arrival, RxPath, Trigger};

/// A data packet, whatever its kind.
pub(super) struct Piece<'p> {
    pub msgh: Msgh,
    /// Address and key, for a Write.
    pub remote: Option<(u64, u32)>,
    pub payload: &'p [u8],
}

/// How a piece was placed.
enum Placed {
    Yes,
    /// There is nothing that it could belong to: dropped in silence.
    Nowhere,
    /// It is not cut as messages are, or contradicts the packets of its message that came before: likewise.
    Malformed,
    Refused(NakCode),
}

impl Piece<'_> {
    /// The receive that the message consumes; none for a Write.
    fn rqsn(&self) -> Option<Rqsn> {
        self.remote.is_none().then_some(self.msgh.rqsn)
    }

    /// Whether the piece starts at a multiple of the payload size, and is of that size unless it is the last
    /// (STRM-013, STRM-014). Packets of a message are counted, which only works when they all are cut like that.
    fn is_cut(&self, payload_size: u16) -> bool {
        let size = u32::from(payload_size);
        let fills = self.payload.len() == size as usize;
        let ends = self.msgh.mflags.has(MFlags::EOM) && self.payload.len() <= size as usize;
        self.msgh.offset.is_multiple_of(size) && (fills || ends)
    }
}

impl Connection {
    pub(super) fn on_data(
        &mut self,
        now: u64,
        ecn: Ecn,
        cbh: &Cbh,
        piece: &Piece<'_>,
        shared: &mut Shared<'_>,
    ) {
        let path = usize::from(cbh.path);
        let Some(rx) = self.rx.get_mut(path).filter(|_| cbh.epoch == 0) else {
            shared.counters.misdirected += 1;
            return;
        };
        let trigger = Trigger {
            timestamp: cbh.timestamp,
            arrived: now,
            stream: piece.msgh.stream,
            rtx: cbh.flags.has(Flags::RTX),
        };
        match rx.classify(cbh.psn) {
            Arrival::OutOfWindow => {
                shared.counters.out_of_window += 1;
                rx.out_of_window_seen = true;
                return;
            }
            Arrival::Duplicate => {
                shared.counters.duplicates += 1;
                rx.duplicate_seen = true;
                rx.ack_now = true;
                rx.trigger = Some(trigger);
                return;
            }
            Arrival::New => {}
        }
        match self.place(piece, shared) {
            Placed::Yes => {}
            Placed::Nowhere => {
                shared.counters.misdirected += 1;
                return;
            }
            Placed::Malformed => {
                shared.counters.malformed += 1;
                return;
            }
            Placed::Refused(code) => {
                self.refuse(now, cbh, &piece.msgh, code, shared);
                return;
            }
        }
        if ecn == Ecn::Ce {
            shared.counters.ce_seen += 1;
        }
        let due = now + u64::from(self.mine.ack_delay) * 1000;
        let at_once = cbh.flags.has(Flags::AR) || piece.msgh.mflags.has(MFlags::EOM);
        let rx = &mut self.rx[path];
        rx.take(cbh.psn, ecn, piece.payload.len(), at_once);
        rx.trigger = Some(trigger);
        rx.ack_due.get_or_insert(due);
        self.count(now, piece, shared);
    }

    fn place(&self, piece: &Piece<'_>, shared: &mut Shared<'_>) -> Placed {
        let msgh = &piece.msgh;
        let window = self.agreed().msg_window;
        let Some(stream) = self
            .streams
            .get(&msgh.stream)
            .filter(|stream| stream.state.takes_data())
        else {
            return Placed::Nowhere;
        };
        if self.state.is_over() || !stream.expects(msgh.msn, window) {
            return Placed::Nowhere;
        }
        if !piece.is_cut(self.agreed().payload_size)
            || !stream.goes_with(msgh.msn, piece.rqsn(), msgh.len)
        {
            return Placed::Malformed;
        }
        let placed = match piece.remote {
            Some((va, rkey)) => {
                let start = va.checked_add(u64::from(msgh.offset));
                start.is_some_and(|start| shared.memory.remote_write(rkey, start, piece.payload))
            }
            None => {
                let Some(receive) = stream.receive(msgh.rqsn) else {
                    return Placed::Nowhere;
                };
                if msgh.len as usize > receive.buffer.len {
                    return Placed::Refused(NakCode::LENGTH);
                }
                shared
                    .memory
                    .place(&receive.buffer, msgh.offset as usize, piece.payload)
            }
        };
        if placed {
            Placed::Yes
        } else {
            Placed::Refused(NakCode::REM_ACCESS)
        }
    }

    fn refuse(&mut self, now: u64, cbh: &Cbh, msgh: &Msgh, code: NakCode, shared: &mut Shared<'_>) {
        let nak = Nak {
            code,
            scope: NakScope::CONNECTION,
            stream: msgh.stream,
            msn: msgh.msn,
            rsvd: 0,
            offending_psn: cbh.psn,
            detail: 0,
        };
        let header = Cbh {
            path: cbh.path,
            epoch: cbh.epoch,
            timestamp: now as u32,
            ..Cbh::new(Opcode::NAK, self.theirs.scid)
        };
        let bytes = emit(header, Body::Nak(nak), self.local, self.peer);
        self.control.push_back((self.first_port, bytes));
        shared.counters.naks_sent += 1;
        if code == NakCode::LENGTH
            && let Some(stream) = self.streams.get_mut(&msgh.stream)
        {
            stream.mark_overrun(msgh.rqsn);
        }
    }

    fn count(&mut self, now: u64, piece: &Piece<'_>, shared: &mut Shared<'_>) {
        let msgh = &piece.msgh;
        let packets = packets(msgh.len, self.agreed().payload_size);
        let Some(stream) = self.streams.get_mut(&msgh.stream) else {
            return;
        };
        let Ok(complete) = stream.on_arrival(msgh.msn, piece.rqsn(), msgh.len, packets) else {
            let message = "the peer numbers its sends out of order";
            return self.fail(now, Status::RemInvReqErr, message, shared);
        };
        for (receive, byte_len) in complete {
            shared.events.push_back(Event::Completion {
                conn: self.handle,
                stream: msgh.stream,
                wr_id: receive.wr_id,
                kind: WorkKind::Recv,
                status: Status::Success,
                byte_len,
            });
        }
    }

    /// The next acknowledgment that is due.
    pub(super) fn poll_ack(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        let due = |rx: &RxPath| rx.ack_now || rx.ack_due.is_some_and(|due| due <= now);
        let path = self.rx.iter().position(due)?;
        let rx = &mut self.rx[path];
        let Some(trigger) = rx.trigger else {
            rx.acknowledged();
            return None;
        };
        let delay = now.saturating_sub(trigger.arrived) / 64;
        let mut flags = AckFlags::ECHO_VALID.0;
        if rx.duplicate_seen {
            flags |= AckFlags::DUPLICATE_SEEN.0;
        }
        if rx.out_of_window_seen {
            flags |= AckFlags::OUT_OF_WINDOW_SEEN.0;
        }
        let header = AckHeader {
            timestamp_echo: trigger.timestamp,
            ack_delay: u16::try_from(delay).unwrap_or(u16::MAX),
            ack_flags: flags,
            ce_count: rx.ce,
            ect_count: rx.ect,
            hint_epoch: 0,
            rate_hint: U24::new(0x00ff_ffff),
            stream: trigger.stream,
            rq_limit: self
                .streams
                .get(&trigger.stream)
                .map_or(Rqsn::new(0), super::stream::Stream::rq_limit),
        };
        let (cum, sack) = (rx.cum, rx.sack());
        rx.acknowledged();
        let (opcode, body) = if sack.is_empty() {
            (Opcode::ACK, Body::Ack(Ack { header }))
        } else {
            (Opcode::ACK_SACK, Body::AckSack(AckSack { header, sack }))
        };
        let cbh = Cbh {
            flags: if trigger.rtx { Flags::RTXE } else { Flags(0) },
            path: path as u8,
            psn: cum,
            timestamp: now as u32,
            ..Cbh::new(opcode, self.theirs.scid)
        };
        emit_into(out, cbh, body, self.local, self.peer);
        Some(self.transmit(self.first_port + path as u16, Ecn::NotEct))
    }

    pub(super) fn on_probe(&mut self, now: u64, cbh: &Cbh, probe: &PathProbe) {
        let Some(rx) = self
            .rx
            .get(usize::from(cbh.path))
            .filter(|_| cbh.epoch == 0)
        else {
            return;
        };
        let body = Body::PathProbeAck(PathProbeAck {
            timestamp_echo: cbh.timestamp,
            cum_psn: rx.cum,
            highest_psn: probe.highest_psn,
            hint_epoch: 0,
            rate_hint: U24::new(0xff_ffff),
            sack: rx.sack(),
        });
        let header = Cbh {
            path: cbh.path,
            psn: cbh.psn,
            timestamp: now as u32,
            ..Cbh::new(Opcode::PATH_PROBE_ACK, self.theirs.scid)
        };
        let bytes = emit(header, body, self.local, self.peer);
        self.control.push_back((self.first_port, bytes));
    }
}

/// Packets of a message of `len` bytes: at least one.
pub(super) fn packets(len: u32, payload_size: u16) -> u32 {
    len.div_ceil(u32::from(payload_size)).max(1)
}
