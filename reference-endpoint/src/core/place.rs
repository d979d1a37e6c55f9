//! Where a data packet belongs: the checks in the order of the chapter on errors, placement, and what follows when a
//! message is whole.

use metaroce_wire::metaroce::{Cbh, Features, NakCode, Opcode};

use super::config::Data;
use super::connection::{Connection, Shared};
use super::event::Status;
use super::inbox::{Extras, Shape, Slot, Standing};
use super::memory::Wish;
use super::nak::Named;
use super::receive::Piece;
use super::transitions::StreamState;

/// What becomes of a packet that comes for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is placed and counts for its message.
    Arrives,
    /// It uses up its PSN and nothing else: a FILL, or of a stream that was reset.
    Consumed,
    /// There is nothing that it could belong to.
    Silence,
    Refused(NakCode),
    /// Its message was refused before.
    RefusedBefore,
    /// It meets no receive although one was promised.
    NotReady,
}

impl Connection {
    /// Checks a packet and places what it carries (chapter on errors).
    pub(super) fn judge(
        &mut self,
        now: u64,
        plane: u8,
        cbh: &Cbh,
        piece: &Piece<'_>,
        shared: &mut Shared<'_>,
    ) -> Verdict {
        if piece.opcode == Opcode::FILL {
            return if self.has(Features::RESET) {
                Verdict::Consumed
            } else {
                Verdict::Silence
            };
        }
        let Some(stream) = self.streams.get(piece.msgh.stream) else {
            return Verdict::Silence;
        };
        match stream.state {
            StreamState::Reset => return Verdict::Consumed,
            state if !state.takes_data() => return Verdict::Silence,
            _ => {}
        }
        if stream.rare().is_some_and(|rare| !rare.refusals.is_empty()) {
            let named = Named::new(cbh, &piece.msgh);
            if self.refuse_again(now, &named, plane, shared) {
                return Verdict::RefusedBefore;
            }
        }
        if piece.opcode.is_response() {
            return self.judge_response(piece, shared);
        }
        self.judge_request(piece, shared)
    }

    fn judge_request(&mut self, piece: &Piece<'_>, shared: &mut Shared<'_>) -> Verdict {
        let msgh = &piece.msgh;
        let size = self.agreed().payload_size;
        let window = self.agreed().msg_window;
        let invalid = Verdict::Refused(NakCode::REM_INV_REQ);
        let shape = piece.shape();
        let Some(stream) = self.streams.get(msgh.stream) else {
            return Verdict::Silence;
        };
        // After CLOSE the peer begins nothing; what it begins all the same will be flushed with the connection.
        if self.peer_closed && !stream.rx.is_begun(msgh.msn) {
            return Verdict::Silence;
        }
        if !self.takes(piece.opcode) || !piece.is_cut(size) {
            return invalid;
        }
        if stream.rx.standing(msgh.msn, window, &shape) != Standing::Fits {
            return invalid;
        }
        let beyond_depth = match piece.opcode {
            Opcode::READ_REQ => self.reads_held >= u32::from(self.mine.read_depth),
            Opcode::CMP_SWAP | Opcode::FETCH_ADD => {
                self.atomics_held >= u32::from(self.mine.atomic_depth)
            }
            _ => false,
        };
        if beyond_depth {
            return invalid;
        }
        if let Some(verdict) = self.bind_receive(piece, shared) {
            return verdict;
        }
        self.place(piece, shared)
    }

    /// Finds the receive of a message that consumes one. Nothing when all is well with it.
    fn bind_receive(&mut self, piece: &Piece<'_>, shared: &mut Shared<'_>) -> Option<Verdict> {
        let rqsn = piece.rqsn()?;
        let stream = self.streams.get_mut(piece.msgh.stream)?;
        let mut slot = stream.rx.slot(rqsn);
        if let (Slot::Empty, Some(srq)) = (slot, stream.config.srq)
            && let Some(receive) = shared.srqs.bind(srq)
        {
            stream.rx.bind(rqsn, receive);
            slot = Slot::Ready(receive);
        }
        let receive = match slot {
            Slot::Unpromised => return Some(Verdict::Refused(NakCode::REM_INV_REQ)),
            Slot::Empty => return Some(Verdict::NotReady),
            Slot::Ready(receive) => receive,
        };
        if piece.opcode != Opcode::WRITE_IMM && piece.msgh.len as usize > receive.buffer.len {
            if let Some(receive) = stream.rx.receive_mut(rqsn) {
                receive.overrun = true;
            }
            return Some(Verdict::Refused(NakCode::LENGTH));
        }
        None
    }

    /// Places a packet of a request in memory, after the check of its key.
    fn place(&mut self, piece: &Piece<'_>, shared: &mut Shared<'_>) -> Verdict {
        let msgh = &piece.msgh;
        let access = Verdict::Refused(NakCode::REM_ACCESS);
        let Some(stream) = self.streams.get_mut(msgh.stream) else {
            return Verdict::Silence;
        };
        let domain = stream.config.domain;
        let (remote, len) = (piece.extras.remote, u64::from(msgh.len));
        match piece.opcode {
            // The key of an empty message is not looked at (MEM-005).
            Opcode::WRITE | Opcode::WRITE_IMM | Opcode::READ_REQ if msgh.len == 0 => {}
            Opcode::WRITE | Opcode::WRITE_IMM => {
                let Some(range) = shared.memory.check(Wish::Write, domain, remote, len) else {
                    return access;
                };
                let offset = msgh.offset as usize;
                shared.memory.write(range, offset, piece.payload);
            }
            Opcode::READ_REQ => {
                if shared
                    .memory
                    .check(Wish::Read, domain, remote, len)
                    .is_none()
                {
                    return access;
                }
            }
            Opcode::CMP_SWAP | Opcode::FETCH_ADD => {
                if shared
                    .memory
                    .check(Wish::Atomic, domain, remote, len)
                    .is_none()
                {
                    return access;
                }
            }
            Opcode::SEND_INV if !shared.memory.can_invalidate(piece.extras.word, domain) => {
                return access;
            }
            _ => {
                let receive = stream.rx.receive_mut(msgh.rqsn);
                let Some(receive) = receive else {
                    return Verdict::NotReady;
                };
                let buffer = receive.buffer;
                let placed = shared
                    .memory
                    .place(&buffer, msgh.offset as usize, piece.payload);
                if !placed {
                    return Verdict::Refused(NakCode::REM_OP);
                }
            }
        }
        if piece.rqsn().is_some()
            && let Some(receive) = stream.rx.receive_mut(msgh.rqsn)
        {
            receive.begun = true;
        }
        match piece.opcode {
            Opcode::READ_REQ => self.reads_held += 1,
            Opcode::CMP_SWAP | Opcode::FETCH_ADD => self.atomics_held += 1,
            _ => {}
        }
        Verdict::Arrives
    }

    /// Places a packet of the answer to a request that is under way (OPS-020, OPS-022, OPS-039).
    fn judge_response(&mut self, piece: &Piece<'_>, shared: &mut Shared<'_>) -> Verdict {
        let msgh = &piece.msgh;
        let size = self.agreed().payload_size;
        let invalid = Verdict::Refused(NakCode::REM_INV_REQ);
        let Some(stream) = self.streams.get_mut(msgh.stream) else {
            return Verdict::Silence;
        };
        let message = stream.tx.message_mut(msgh.msn);
        let Some(message) = message.filter(|message| message.waits_for_answer()) else {
            return invalid;
        };
        let reads = message.work.op.kind() == super::event::WorkKind::Read;
        if reads != (piece.opcode == Opcode::READ_RESP) || msgh.len != message.len {
            if reads && msgh.len > message.len {
                message.overlong = true;
            }
            return invalid;
        }
        if !piece.is_cut(size) {
            return invalid;
        }
        let value = piece.extras.operands.0.to_ne_bytes();
        let bytes = if reads { piece.payload } else { &value[..] };
        let placed = match &message.work.data {
            Data::Buffer(buffer) => shared.memory.place(buffer, msgh.offset as usize, bytes),
            Data::Inline(_) => false,
        };
        if !placed {
            // The program has taken its own memory away: the answer has no place, which is nobody else's fault.
            message.failed_here = Some(Status::LocProtErr);
        }
        Verdict::Arrives
    }

    /// Counts a packet that has been placed, and does what is to be done when its message is whole.
    pub(super) fn count(
        &mut self,
        now: u64,
        plane: u8,
        piece: &Piece<'_>,
        shared: &mut Shared<'_>,
    ) {
        let msgh = &piece.msgh;
        let bytes = piece.payload.len() as u64;
        self.tally.bytes_received += bytes;
        if let Some(stream) = self.streams.get_mut(msgh.stream) {
            stream.bytes_received += bytes;
        }
        let packets = piece.packets(self.agreed().payload_size);
        if piece.opcode.is_response() {
            return self.count_response(now, piece, shared);
        }
        let Some(stream) = self.streams.get_mut(msgh.stream) else {
            return;
        };
        let extras = Extras {
            plane,
            ..piece.extras
        };
        let counted = stream
            .rx
            .on_arrival(msgh.msn, piece.shape(), packets, extras);
        if counted.is_err() {
            return self.fail_stream(now, msgh.stream, None, shared);
        }
        self.run_actions(now, msgh.stream, shared);
    }

    fn count_response(&mut self, now: u64, piece: &Piece<'_>, shared: &mut Shared<'_>) {
        let id = piece.msgh.stream;
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        let Some(message) = stream.tx.message_mut(piece.msgh.msn) else {
            return;
        };
        message.answered += 1;
        if message.answered < message.answer_packets {
            return;
        }
        let over = !message.is_operation_under_way();
        let kind = message.work.op.kind();
        message.failed = message.failed.or(message.failed_here);
        stream.tx.unanswered = stream.tx.unanswered.saturating_sub(1);
        if over {
            self.operation_over(kind);
        }
        self.report_ended(now, id, shared);
        self.activate(id);
        self.settle(now, shared);
    }
}

impl Piece<'_> {
    pub(super) fn shape(&self) -> Shape {
        Shape {
            opcode: self.opcode,
            rqsn: self.rqsn(),
            len: self.msgh.len,
        }
    }
}
