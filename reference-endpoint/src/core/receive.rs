//! Data coming in: sorted by path, checked, placed at once wherever it belongs, and acknowledged.

use metaroce_wire::metaroce::{
    Ack, AckFlags, AckHeader, AckSack, Body, Cbh, Features, Flags, MFlags, Msgh, Opcode, U24,
};
use metaroce_wire::serial::Rqsn;

use super::config::{Ecn, Transmit};
use super::connection::{Connection, NEVER, Shared};
use super::emit::append;
use super::inbox::Extras;
use super::nak::Named;
use super::place::Verdict;
use super::rx_path::{Arrival, RxPath, Trigger};
use super::transitions::StreamState;

/// A data packet, whatever its kind.
#[derive(Clone, Copy)]
pub(super) struct Piece<'p> {
    pub opcode: Opcode,
    pub msgh: Msgh,
    pub extras: Extras,
    pub payload: &'p [u8],
}

impl<'p> Piece<'p> {
    /// The data packet in a body; none where it is no data.
    pub(super) fn of(cbh: &Cbh, body: &Body<'p>) -> Option<Self> {
        let mut extras = Extras {
            origin: (cbh.path, cbh.epoch, cbh.psn),
            solicited: cbh.flags.has(Flags::SE),
            ..Extras::default()
        };
        let (msgh, payload) = match body {
            Body::Send(send) => (send.msgh, send.payload),
            Body::SendImm(send) => {
                extras.word = send.header.imm;
                (send.msgh, send.payload)
            }
            Body::SendInv(send) => {
                extras.word = send.header.rkey;
                (send.msgh, send.payload)
            }
            Body::Write(write) => {
                extras.remote = (write.tagh.va, write.tagh.rkey);
                (write.msgh, write.payload)
            }
            Body::WriteImm(write) => {
                extras.remote = (write.tagh.va, write.tagh.rkey);
                extras.word = write.tagh.imm;
                (write.msgh, write.payload)
            }
            Body::ReadReq(read) => {
                extras.remote = (read.tagh.va, read.tagh.rkey);
                (read.msgh, &[][..])
            }
            Body::CmpSwap(swap) => {
                extras.remote = (swap.tagh.va, swap.tagh.rkey);
                extras.operands = (swap.atomic.swap_or_add, swap.atomic.compare);
                (swap.msgh, &[][..])
            }
            Body::FetchAdd(add) => {
                extras.remote = (add.tagh.va, add.tagh.rkey);
                extras.operands = (add.atomic.swap_or_add, 0);
                (add.msgh, &[][..])
            }
            Body::ReadResp(read) => (read.msgh, read.payload),
            Body::AtomicResp(atomic) => {
                extras.operands = (atomic.header.original, 0);
                (atomic.msgh, &[][..])
            }
            Body::Fill(fill) => (fill.msgh, &[][..]),
            _ => return None,
        };
        Some(Self {
            opcode: cbh.opcode,
            msgh,
            extras,
            payload,
        })
    }

    /// The receive that the message consumes.
    pub(super) fn rqsn(&self) -> Option<Rqsn> {
        let consumes = matches!(
            self.opcode,
            Opcode::SEND | Opcode::SEND_IMM | Opcode::SEND_INV | Opcode::WRITE_IMM
        );
        consumes.then_some(self.msgh.rqsn)
    }

    /// Whether the payload is a piece of the message, and not a request or an answer of one packet.
    fn has_pieces(&self) -> bool {
        !matches!(
            self.opcode,
            Opcode::READ_REQ | Opcode::CMP_SWAP | Opcode::FETCH_ADD | Opcode::ATOMIC_RESP
        )
    }

    /// Whether the piece starts at a multiple of the payload size, and is of that size unless it is the last
    /// (STRM-013, STRM-014). Packets of a message are counted, which only works when they all are cut like that.
    pub(super) fn is_cut(&self, payload_size: u16) -> bool {
        if !self.has_pieces() {
            return true;
        }
        let size = u32::from(payload_size);
        let fills = self.payload.len() == size as usize;
        let ends = self.msgh.mflags.has(MFlags::EOM) && self.payload.len() <= size as usize;
        self.msgh.offset.is_multiple_of(size) && (fills || ends)
    }

    /// Packets of its message.
    pub(super) fn packets(&self, payload_size: u16) -> u32 {
        if self.has_pieces() {
            packets(self.msgh.len, payload_size)
        } else {
            1
        }
    }
}

impl Connection {
    pub(super) fn on_data(
        &mut self,
        now: u64,
        (plane, ecn): (u8, Ecn),
        cbh: &Cbh,
        piece: &Piece<'_>,
        shared: &mut Shared<'_>,
    ) {
        let path = usize::from(cbh.path);
        let over = self.state.is_over();
        let current = |rx: &&mut RxPath| rx.epoch == cbh.epoch && !over;
        let Some(rx) = self.rx.get_mut(path).filter(current) else {
            shared.counters.misdirected += 1;
            return;
        };
        let trigger = Trigger {
            timestamp: cbh.timestamp,
            arrived: now,
            stream: piece.msgh.stream,
            rtx: cbh.flags.has(Flags::RTX),
            plane,
        };
        match rx.classify(cbh.psn) {
            Arrival::OutOfWindow => {
                shared.counters.out_of_window += 1;
                rx.out_of_window_seen = true;
                return;
            }
            Arrival::Duplicate => {
                shared.counters.duplicates += 1;
                let queued = rx.ack_now;
                rx.take_again();
                rx.trigger = Some(trigger);
                if !queued {
                    self.acks.push_back(path as u16);
                }
                return self.arrived(now, piece, shared);
            }
            Arrival::New => {}
        }
        let verdict = self.judge(now, plane, cbh, piece, shared);
        match verdict {
            Verdict::Arrives | Verdict::Consumed => {}
            Verdict::Silence => {
                shared.counters.misdirected += 1;
                return;
            }
            Verdict::Refused(code) => {
                let named = Named::new(cbh, &piece.msgh);
                return self.refuse(now, &named, plane, code, shared);
            }
            Verdict::NotReady => {
                let named = Named::new(cbh, &piece.msgh);
                return self.refuse_not_ready(now, &named, plane, shared);
            }
            Verdict::RefusedBefore => return,
        }
        if ecn == Ecn::Ce {
            shared.counters.ce_seen += 1;
        }
        let due = now + u64::from(self.mine.ack_delay) * 1000;
        let eom = piece.msgh.mflags.has(MFlags::EOM) && piece.opcode != Opcode::FILL;
        let at_once = cbh.flags.has(Flags::AR) || eom;
        let rx = &mut self.rx[path];
        let queued = rx.ack_now;
        rx.take(cbh.psn, ecn, piece.payload.len(), at_once);
        rx.trigger = Some(trigger);
        if rx.ack_now && !queued {
            self.acks.push_back(path as u16);
        } else if rx.ack_due.is_none() {
            rx.ack_due = Some(due);
            self.arm(due);
        }
        self.arrived(now, piece, shared);
        if verdict == Verdict::Arrives {
            self.count(now, plane, piece, shared);
        }
    }

    /// Counts what has arrived for the shares that senders are told of.
    fn arrived(&mut self, now: u64, piece: &Piece<'_>, shared: &mut Shared<'_>) {
        if !self.settings.hints {
            return;
        }
        // The headers of the kinds differ by a few bytes; the payload is what counts.
        let bytes = (piece.payload.len() + self.over_payload()) as u32;
        let srtt = self.tx.iter().filter_map(|tx| tx.rtt.smoothed()).min();
        if shared.shares.on_arrival(now, self.handle, bytes, srtt) {
            self.owe_hint(now + u64::from(self.mine.hint_interval) * 1000);
        }
    }

    /// The hint to send to this peer: the number, and the rate in Mb/s.
    pub(super) fn own_hint(&mut self, shared: &mut Shared<'_>) -> (u8, U24) {
        if !self.settings.hints {
            return (0, U24::new(0xff_ffff));
        }
        let (epoch, rate) = shared.shares.hint(self.handle);
        self.hint_owed = NEVER;
        (epoch, U24::new(rate))
    }

    /// When the next acknowledgment is due although nothing else comes, ns.
    pub(super) fn ack_deadline(&self) -> u64 {
        let waiting = self.rx.iter().filter(|rx| !rx.ack_now);
        let due = waiting.filter_map(|rx| rx.ack_due);
        due.min().unwrap_or(NEVER)
    }

    /// Makes the acknowledgments due whose time has come.
    pub(super) fn on_ack_timer(&mut self, now: u64) {
        for (path, rx) in (0u16..).zip(&mut self.rx) {
            if rx.ack_due.is_some_and(|due| due <= now) && !rx.ack_now {
                rx.ack_now = true;
                self.acks.push_back(path);
            }
        }
    }

    /// Adds the next acknowledgment that is due to `out`.
    pub(super) fn poll_ack(
        &mut self,
        now: u64,
        shared: &mut Shared<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let (path, trigger) = loop {
            let path = self.acks.pop_front()?;
            let rx = &mut self.rx[usize::from(path)];
            if let Some(trigger) = rx.trigger.filter(|_| rx.ack_now) {
                break (path, trigger);
            }
        };
        let (hint_epoch, rate_hint) = self.own_hint(shared);
        let rq_limit = self.report_credit(trigger.stream, shared);
        let rx = &mut self.rx[usize::from(path)];
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
            hint_epoch,
            rate_hint,
            stream: trigger.stream,
            rq_limit,
        };
        let (cum, sack, epoch) = (rx.cum, rx.sack(), rx.epoch);
        let shift = rx.shift;
        let again = now + u64::from(self.mine.ack_delay) * 1000;
        rx.acknowledged(again);
        let due = rx.ack_due.unwrap_or(NEVER);
        self.arm(due);
        let (opcode, body) = if sack.is_empty() {
            (Opcode::ACK, Body::Ack(Ack { header }))
        } else {
            (Opcode::ACK_SACK, Body::AckSack(AckSack { header, sack }))
        };
        let flags = if trigger.rtx { Flags::RTXE } else { Flags(0) };
        let cbh = Cbh {
            flags,
            path: path as u8,
            epoch,
            psn: cum,
            timestamp: now as u32,
            ..Cbh::new(opcode, self.theirs.scid)
        };
        let (src_ip, dst) = self.addresses(trigger.plane);
        append(out, cbh, body, src_ip, dst);
        Some(Transmit {
            src_ip,
            src_port: self.settings.port(path.wrapping_add(shift)),
            dst,
            ecn: Ecn::NotEct,
        })
    }

    /// The credit of a stream to tell the peer, more of a shared queue set aside for it first.
    pub(super) fn report_credit(&mut self, id: u16, shared: &mut Shared<'_>) -> Rqsn {
        let Some(stream) = self.streams.get_mut(id) else {
            return Rqsn::new(0);
        };
        if !matches!(stream.state, StreamState::Open | StreamState::Opening) {
            return stream.rx.reported();
        }
        if let Some(srq) = stream.config.srq {
            let who = (self.handle, id);
            let more = shared.srqs.promise(srq, who, stream.rx.promised());
            stream.rx.promise(more);
        }
        let promised = stream.config.srq.is_some();
        stream.rx.report(promised)
    }

    /// Whether an operation has been agreed that the peer asks for.
    pub(super) fn takes(&self, opcode: Opcode) -> bool {
        match opcode {
            Opcode::SEND_IMM | Opcode::WRITE_IMM => self.has(Features::IMM),
            Opcode::SEND_INV => self.has(Features::INV),
            Opcode::READ_REQ => self.mine.read_depth > 0,
            Opcode::CMP_SWAP | Opcode::FETCH_ADD => self.mine.atomic_depth > 0,
            _ => true,
        }
    }
}

/// Packets of a message of `len` bytes: at least one.
pub(super) fn packets(len: u32, payload_size: u16) -> u32 {
    len.div_ceil(u32::from(payload_size)).max(1)
}
