//! What is to be done when a message is whole and all before it are: completions of receives, keys made invalid, Reads
//! and atomic operations carried out, and their answers.

use metaroce_wire::metaroce::{NakCode, Opcode};
use metaroce_wire::serial::Msn;

use super::connection::{Connection, Shared};
use super::event::{Completion, Event, Status, WorkKind};
use super::inbox::Action;
use super::memory::Wish;
use super::nak::Named;
use super::receive::packets;
use super::stream::{Answer, Source};
use super::transitions::StreamState;
use super::tx_path::Carried;

impl Connection {
    /// Does what is to be done on a stream, in the order of its messages. It stops at a Read that is not carried out
    /// (OPS-035).
    pub(super) fn run_actions(&mut self, now: u64, id: u16, shared: &mut Shared<'_>) {
        loop {
            let takes = |stream: &&mut super::stream::Stream| stream.state.takes_data();
            let Some(stream) = self.streams.get_mut(id).filter(takes) else {
                return;
            };
            let Some(action) = stream.rx.action().copied() else {
                return;
            };
            let done = match action.shape.opcode {
                Opcode::READ_REQ => self.run_read(now, id, &action, shared),
                Opcode::CMP_SWAP | Opcode::FETCH_ADD => self.run_atomic(now, id, &action, shared),
                _ => self.run_receive(id, &action, shared),
            };
            if !done {
                return;
            }
            if let Some(stream) = self.streams.get_mut(id) {
                stream.rx.done();
            }
        }
    }

    /// Completes the receive of a message.
    fn run_receive(&mut self, id: u16, action: &Action, shared: &mut Shared<'_>) -> bool {
        let Some(stream) = self.streams.get_mut(id) else {
            return false;
        };
        let Some(receive) = stream.rx.consume() else {
            return true;
        };
        self.tally.messages_received += 1;
        let word = action.extras.word;
        let (mut imm, mut invalidated) = (None, None);
        let kind = match action.shape.opcode {
            Opcode::WRITE_IMM => {
                imm = Some(word);
                WorkKind::RecvWrite
            }
            Opcode::SEND_IMM => {
                imm = Some(word);
                WorkKind::Recv
            }
            Opcode::SEND_INV => {
                // Before the completion, and not before every lower message is complete (OPS-009, OPS-010).
                shared.memory.invalidate(word);
                invalidated = Some(word);
                WorkKind::Recv
            }
            _ => WorkKind::Recv,
        };
        shared.events.push_back(Event::Completion(Completion {
            conn: self.handle,
            stream: id,
            wr_id: receive.wr_id,
            kind,
            status: Status::Success,
            byte_len: action.shape.len,
            imm,
            invalidated,
            solicited: action.extras.solicited,
        }));
        true
    }

    /// Begins to answer a Read; it is done when the last byte is read, that is when all of its answer has been sent.
    fn run_read(&mut self, now: u64, id: u16, action: &Action, shared: &mut Shared<'_>) -> bool {
        let size = self.agreed().payload_size;
        let Some(stream) = self.streams.get_mut(id) else {
            return false;
        };
        if let Some(answer) = stream.answer_mut(action.msn) {
            return answer.sent == answer.packets;
        }
        let len = action.shape.len;
        let (remote, domain) = (action.extras.remote, stream.config.domain);
        let open = shared
            .memory
            .check(Wish::Read, domain, remote, u64::from(len));
        if len > 0 && open.is_none() {
            self.refuse_late(now, id, action, shared);
            return false;
        }
        stream.make_rare().answers.push_back(Answer {
            msn: action.msn,
            len,
            packets: packets(len, size),
            sent: 0,
            acked: 0,
            source: Source::Memory,
            request: action.extras,
            kept: std::collections::BTreeMap::new(),
        });
        self.activate(id);
        false
    }

    /// Carries out an atomic operation, once, and keeps its result (OPS-026 to OPS-030).
    fn run_atomic(&mut self, now: u64, id: u16, action: &Action, shared: &mut Shared<'_>) -> bool {
        let Some(stream) = self.streams.get_mut(id) else {
            return false;
        };
        let (remote, domain) = (action.extras.remote, stream.config.domain);
        let (operand, compare) = action.extras.operands;
        let range = shared.memory.check(Wish::Atomic, domain, remote, 8);
        let adds = action.shape.opcode == Opcode::FETCH_ADD;
        let change = |before: u64| match (adds, before == compare) {
            (true, _) => before.wrapping_add(operand),
            (false, true) => operand,
            (false, false) => before,
        };
        let before = range.and_then(|range| shared.memory.exchange(range, change));
        let Some(before) = before else {
            self.refuse_late(now, id, action, shared);
            return false;
        };
        stream.make_rare().answers.push_back(Answer {
            msn: action.msn,
            len: 8,
            packets: 1,
            sent: 0,
            acked: 0,
            source: Source::Value(before),
            request: action.extras,
            kept: std::collections::BTreeMap::new(),
        });
        self.activate(id);
        true
    }

    /// Refuses a request that was acknowledged, because its memory has been closed since (OPS-044, OPS-050). Nothing is
    /// answered, and nothing after it on the stream is done.
    fn refuse_late(&mut self, now: u64, id: u16, action: &Action, shared: &mut Shared<'_>) {
        let named = Named {
            stream: id,
            msn: action.msn,
            response: false,
            origin: action.extras.origin,
        };
        let known = self
            .streams
            .get_mut(id)
            .is_some_and(|stream| stream.refusal_mut(action.msn, false).is_some());
        if !known {
            let plane = action.extras.plane;
            self.refuse(now, &named, plane, NakCode::REM_ACCESS, shared);
        }
    }

    /// The next packet of an answer that has not been sent, with its bytes taken and kept (OPS-036, OPS-042).
    pub(super) fn next_answer(
        &mut self,
        now: u64,
        id: u16,
        shared: &mut Shared<'_>,
    ) -> Option<Carried> {
        let size = u32::from(self.agreed().payload_size);
        let stream = self.streams.get_mut(id)?;
        if stream.state != StreamState::Open {
            return None;
        }
        let domain = stream.config.domain;
        let answer = stream.fresh_answer()?;
        let (msn, index) = (answer.msn, answer.sent);
        if answer.source == Source::Memory && answer.len > 0 {
            let offset = index * size;
            let piece = size.min(answer.len - offset) as usize;
            let (remote, len) = (answer.request.remote, u64::from(answer.len));
            let range = shared.memory.check(Wish::Read, domain, remote, len);
            let bytes = range.and_then(|r| shared.memory.read(r, offset as usize, piece));
            let Some(bytes) = bytes else {
                self.end_answer(now, id, msn, shared);
                return None;
            };
            answer.kept.insert(index, bytes.into());
        }
        answer.sent += 1;
        Some(Carried {
            stream: id,
            msn,
            index,
            response: true,
        })
    }

    /// The memory of a Read has been closed while its answer was being sent.
    fn end_answer(&mut self, now: u64, id: u16, msn: Msn, shared: &mut Shared<'_>) {
        let stream = self.streams.get(id);
        let action = stream.and_then(|stream| stream.rx.action().copied());
        if let Some(action) = action.filter(|action| action.msn == msn) {
            self.refuse_late(now, id, &action, shared);
        }
    }

    /// Notes that a packet of an answer has been sent for the first time. With the last one its request is no longer held,
    /// and what comes behind it on the stream can be done.
    pub(super) fn answer_sent(&mut self, now: u64, carried: &Carried, shared: &mut Shared<'_>) {
        let stream = self.streams.get_mut(carried.stream);
        let Some(answer) = stream.and_then(|stream| stream.answer_mut(carried.msn)) else {
            return;
        };
        if answer.sent < answer.packets {
            return;
        }
        if answer.source == Source::Memory {
            self.reads_held = self.reads_held.saturating_sub(1);
            self.run_actions(now, carried.stream, shared);
        } else {
            self.atomics_held = self.atomics_held.saturating_sub(1);
        }
    }
}
