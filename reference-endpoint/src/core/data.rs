//! Data packets: what a packet of a message looks like on the wire, now or when it is sent again.

use metaroce_wire::metaroce::Send;
use metaroce_wire::metaroce::{
    Atomic, AtomicResp, AtomicRespHeader, Body, Cbh, CmpSwap, FetchAdd, Fill, Flags, MFlags, Msgh,
    Opcode, ReadReq, ReadResp, SendImm, SendImmHeader, SendInv, SendInvHeader, Tagh, Write,
    WriteImm,
};
use metaroce_wire::serial::{Msn, Psn, Rqsn};

use super::config::{Data, Ecn, Op, Remote, Transmit};
use super::connection::{Connection, Shared};
use super::emit::append;
use super::outbox::Message;
use super::stream::{Answer, Source, Stream};
use super::tx_path::Carried;

/// Under what a data packet goes out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Under {
    pub path: u16,
    pub psn: Psn,
    pub stamp: u32,
    pub flags: Flags,
}

/// A packet of a message, to be written.
struct Piece<'p> {
    msgh: Msgh,
    payload: &'p [u8],
}

impl Connection {
    /// Adds a data packet to `out`. A packet of a stream that has been reset becomes a FILL (ERR-013).
    pub(super) fn put_data(
        &self,
        under: Under,
        carried: &Carried,
        shared: &Shared<'_>,
        out: &mut Vec<u8>,
    ) -> Transmit {
        let stream = self.streams.get(carried.stream);
        let alive = stream.filter(|stream| !stream.state.is_reset());
        let put = alive.and_then(|stream| {
            if carried.response {
                let rare = stream.rare()?;
                let answer = rare.answers.iter().find(|a| a.msn == carried.msn)?;
                self.put_answer(under, carried, answer, out);
            } else {
                let message = stream.tx.message(carried.msn)?;
                self.put_message(under, (stream, carried.index), message, shared, out);
            }
            Some(())
        });
        if put.is_none() {
            self.put_fill(under, carried.stream, out);
        }
        let tx = &self.tx[usize::from(under.path)];
        let (src_ip, dst) = self.addresses(tx.plane);
        Transmit {
            src_ip,
            src_port: tx.port,
            dst,
            ecn: Ecn::Ect0,
        }
    }

    fn put(&self, under: Under, opcode: Opcode, body: Body<'_>, out: &mut Vec<u8>) {
        let tx = &self.tx[usize::from(under.path)];
        let cbh = Cbh {
            epoch: tx.epoch,
            flags: under.flags,
            path: under.path as u8,
            psn: under.psn,
            timestamp: under.stamp,
            ..Cbh::new(opcode, self.theirs.scid)
        };
        let (local, peer) = self.addresses(tx.plane);
        append(out, cbh, body, local, peer);
    }

    fn put_fill(&self, under: Under, stream: u16, out: &mut Vec<u8>) {
        let msgh = Msgh {
            stream,
            rqsn: Rqsn::new(0),
            mflags: MFlags(0),
            msn: Msn::new(0),
            offset: 0,
            len: 0,
        };
        self.put(under, Opcode::FILL, Body::Fill(Fill { msgh }), out);
    }

    /// The message header of packet `index` of a message, and where its payload lies.
    fn msgh(&self, carried: &Carried, (len, rqsn): (u32, Rqsn), more: MFlags) -> (Msgh, usize) {
        let size = u32::from(self.agreed().payload_size);
        // Only the last piece can be shorter, and no message exceeds 2^31 bytes.
        let offset = carried.index.wrapping_mul(size);
        let piece = size.min(len.wrapping_sub(offset));
        let mut mflags = more;
        if offset == 0 {
            mflags = mflags.with(MFlags::SOM);
        }
        if offset + piece == len {
            mflags = mflags.with(MFlags::EOM);
        }
        let msgh = Msgh {
            stream: carried.stream,
            rqsn,
            mflags,
            msn: carried.msn,
            offset,
            len,
        };
        (msgh, piece as usize)
    }

    fn put_answer(&self, under: Under, carried: &Carried, answer: &Answer, out: &mut Vec<u8>) {
        let none = Rqsn::new(0);
        match answer.source {
            Source::Memory => {
                let (msgh, _) = self.msgh(carried, (answer.len, none), MFlags::RESP);
                let payload = answer.kept.get(&carried.index);
                let payload = payload.map_or(&[][..], |bytes| bytes);
                let body = Body::ReadResp(ReadResp { msgh, payload });
                self.put(under, Opcode::READ_RESP, body, out);
            }
            Source::Value(original) => {
                let msgh = self.single(carried, 8, MFlags::RESP);
                let header = AtomicRespHeader { original };
                let body = Body::AtomicResp(AtomicResp { msgh, header });
                self.put(under, Opcode::ATOMIC_RESP, body, out);
            }
        }
    }

    /// The header of a message of one packet without payload.
    fn single(&self, carried: &Carried, len: u32, more: MFlags) -> Msgh {
        Msgh {
            stream: carried.stream,
            rqsn: Rqsn::new(0),
            mflags: more.with(MFlags::SOM).with(MFlags::EOM),
            msn: carried.msn,
            offset: 0,
            len,
        }
    }

    fn put_message(
        &self,
        mut under: Under,
        (stream, index): (&Stream, u32),
        message: &Message,
        shared: &Shared<'_>,
        out: &mut Vec<u8>,
    ) {
        let carried = Carried {
            stream: stream.id,
            msn: message.msn,
            index,
            response: false,
        };
        let more = match message.work.op {
            Op::SendImm(_) | Op::WriteImm(..) => MFlags::IMM,
            Op::SendInv(_) => MFlags::INV,
            _ => MFlags(0),
        };
        let (msgh, len) = self.msgh(&carried, (message.len, message.rqsn), more);
        if message.work.solicited && msgh.mflags.has(MFlags::EOM) {
            under.flags = under.flags.with(Flags::SE);
        }
        let offset = msgh.offset as usize;
        // The buffer was inside its region when the work was posted. Where the program has taken the region away since,
        // zeros stand for what is gone: the cut of the message must stay.
        let gone;
        let bytes = match &message.work.data {
            Data::Inline(bytes) => bytes.get(offset..offset + len),
            Data::Buffer(buffer) if len > 0 => shared.memory.slice(buffer, offset, len),
            Data::Buffer(_) => Some(&[][..]),
        };
        let payload = match bytes {
            Some(bytes) => bytes,
            None if message.work.op.is_answered() => &[],
            None => {
                gone = vec![0; len];
                &gone
            }
        };
        let piece = Piece { msgh, payload };
        self.put_operation(under, &carried, message, piece, out);
    }

    fn put_operation(
        &self,
        under: Under,
        carried: &Carried,
        message: &Message,
        Piece { msgh, payload }: Piece<'_>,
        out: &mut Vec<u8>,
    ) {
        let tagged = |remote: Remote, imm| Tagh {
            va: remote.va,
            rkey: remote.rkey,
            imm,
        };
        let single = |len| self.single(carried, len, MFlags(0));
        let (opcode, body) = match message.work.op {
            Op::Send => (Opcode::SEND, Body::Send(Send { msgh, payload })),
            Op::SendImm(imm) => {
                let header = SendImmHeader { imm };
                let body = SendImm {
                    msgh,
                    header,
                    payload,
                };
                (Opcode::SEND_IMM, Body::SendImm(body))
            }
            Op::SendInv(rkey) => {
                let header = SendInvHeader { rkey };
                let body = SendInv {
                    msgh,
                    header,
                    payload,
                };
                (Opcode::SEND_INV, Body::SendInv(body))
            }
            Op::Write(remote) => {
                let tagh = tagged(remote, 0);
                let body = Write {
                    msgh,
                    tagh,
                    payload,
                };
                (Opcode::WRITE, Body::Write(body))
            }
            Op::WriteImm(remote, imm) => {
                let tagh = tagged(remote, imm);
                let body = WriteImm {
                    msgh,
                    tagh,
                    payload,
                };
                (Opcode::WRITE_IMM, Body::WriteImm(body))
            }
            Op::Read(remote) => {
                let msgh = single(message.len);
                let tagh = tagged(remote, 0);
                (Opcode::READ_REQ, Body::ReadReq(ReadReq { msgh, tagh }))
            }
            Op::CmpSwap { at, compare, swap } => {
                let atomic = Atomic {
                    swap_or_add: swap,
                    compare,
                };
                let body = CmpSwap {
                    msgh: single(8),
                    tagh: tagged(at, 0),
                    atomic,
                };
                (Opcode::CMP_SWAP, Body::CmpSwap(body))
            }
            Op::FetchAdd { at, add } => {
                let atomic = Atomic {
                    swap_or_add: add,
                    compare: 0,
                };
                let body = FetchAdd {
                    msgh: single(8),
                    tagh: tagged(at, 0),
                    atomic,
                };
                (Opcode::FETCH_ADD, Body::FetchAdd(body))
            }
        };
        self.put(under, opcode, body, out);
    }
}
