//! Packets of every type out of a list of numbers, with any values or with legal ones.

use metaroce_wire::metaroce::{
    Accept, Ack, AckFlags, AckHeader, AckSack, Atomic, AtomicResp, AtomicRespHeader, Body, Cbh,
    Close, CloseAck, CmpSwap, Confirm, ConfirmAck, Features, FetchAdd, Fill, Flags, MAX_MSG_LEN,
    MFlags, Msgh, Nak, NakCode, NakScope, Opcode, Open, Packet, Params, PathChange, PathProbe,
    PathProbeAck, PathRetire, PathRetired, Planes, RateHint, ReadReq, ReadResp, Reject,
    RetireReason, RqCredit, Sack, Send, SendImm, SendImmHeader, SendInv, SendInvHeader, StreamOpen,
    StreamOpenAck, StreamReset, StreamResetAck, Tagh, U24, Unknown, VERSION, Write, WriteImm,
};
use metaroce_wire::serial::{Msn, Psn, Rqsn};

/// Hands out numbers one after the other, zero when they are used up.
pub struct Numbers<'n>(pub &'n [u64]);

impl Numbers<'_> {
    fn u64(&mut self) -> u64 {
        let (&first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        first
    }
    fn u32(&mut self) -> u32 {
        self.u64() as u32
    }
    fn u16(&mut self) -> u16 {
        self.u64() as u16
    }
    fn u8(&mut self) -> u8 {
        self.u64() as u8
    }
    fn bytes(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.u64().to_be_bytes());
        }
        bytes
    }
    fn params(&mut self) -> Params {
        Params {
            ver_min: self.u8(),
            ver_max: self.u8(),
            paths: self.u16(),
            rsvd_a: self.u8(),
            scid: U24::new(self.u32()),
            nonce: self.u64(),
            isn: Psn::new(self.u32()),
            service_id: self.u32(),
            streams: self.u16(),
            msg_window: self.u16(),
            payload_size: self.u16(),
            vector_width: self.u16(),
            ts_unit: self.u16(),
            ack_delay: self.u16(),
            hint_interval: self.u16(),
            hint_support: self.u8(),
            extra_planes: self.u8(),
            read_depth: self.u8(),
            atomic_depth: self.u8(),
            features: Features(self.u16()),
        }
    }
    fn planes(&mut self) -> Planes<'static> {
        static BYTES: [[u8; Planes::LEN]; 4] = {
            let mut all = [[0; Planes::LEN]; 4];
            let mut at = 0;
            while at < Planes::LEN {
                all[1][at] = at as u8 + 1;
                all[2][at] = 0xff;
                at += 1;
            }
            all[3][0] = 0x80;
            all[3][Planes::LEN - 1] = 1;
            all
        };
        Planes(&BYTES[self.u8() as usize % BYTES.len()])
    }
    fn msgh(&mut self) -> Msgh {
        Msgh {
            stream: self.u16(),
            rqsn: Rqsn::new(self.u16()),
            mflags: MFlags(self.u8()),
            msn: Msn::new(self.u32()),
            offset: self.u32(),
            len: self.u32(),
        }
    }
    fn tagh(&mut self) -> Tagh {
        Tagh {
            va: self.u64(),
            rkey: self.u32(),
            imm: self.u32(),
        }
    }
    fn atomic(&mut self) -> Atomic {
        Atomic {
            swap_or_add: self.u64(),
            compare: self.u64(),
        }
    }
    fn ack(&mut self) -> AckHeader {
        AckHeader {
            timestamp_echo: self.u32(),
            ack_delay: self.u16(),
            ack_flags: self.u16(),
            ce_count: self.u32(),
            ect_count: self.u32(),
            hint_epoch: self.u8(),
            rate_hint: U24::new(self.u32()),
            stream: self.u16(),
            rq_limit: Rqsn::new(self.u16()),
        }
    }
}

/// Bytes of padding that a payload needs.
pub fn pad(payload: &[u8]) -> u8 {
    (payload.len().next_multiple_of(4) - payload.len()) as u8
}

/// A packet with any value in every field, right or wrong. Only the pad count is what the emitter makes it, and zero
/// where nothing is padded.
///
/// Planes are borrowed, and come out of a few that are there for ever.
pub fn any<'a>(opcode: Opcode, n: &mut Numbers<'_>, payload: &'a [u8]) -> Packet<'a> {
    let planes = [n.planes(), n.planes()];
    let mut cbh = Cbh {
        version: n.u8() & 0x0f,
        epoch: n.u8() & 0x0f,
        opcode,
        flags: Flags(n.u8()),
        path: n.u8(),
        pad: 0,
        rsvd: n.u8() & 0x3f,
        dcid: U24::new(n.u32()),
        psn: Psn::new(n.u32()),
        timestamp: n.u32(),
    };
    let body = match opcode {
        Opcode::SEND => Body::Send(Send {
            msgh: n.msgh(),
            payload,
        }),
        Opcode::WRITE => Body::Write(Write {
            msgh: n.msgh(),
            tagh: n.tagh(),
            payload,
        }),
        Opcode::SEND_IMM => Body::SendImm(SendImm {
            msgh: n.msgh(),
            header: SendImmHeader { imm: n.u32() },
            payload,
        }),
        Opcode::SEND_INV => Body::SendInv(SendInv {
            msgh: n.msgh(),
            header: SendInvHeader { rkey: n.u32() },
            payload,
        }),
        Opcode::WRITE_IMM => Body::WriteImm(WriteImm {
            msgh: n.msgh(),
            tagh: n.tagh(),
            payload,
        }),
        Opcode::READ_REQ => Body::ReadReq(ReadReq {
            msgh: n.msgh(),
            tagh: n.tagh(),
        }),
        Opcode::CMP_SWAP => Body::CmpSwap(CmpSwap {
            msgh: n.msgh(),
            tagh: n.tagh(),
            atomic: n.atomic(),
        }),
        Opcode::FETCH_ADD => Body::FetchAdd(FetchAdd {
            msgh: n.msgh(),
            tagh: n.tagh(),
            atomic: n.atomic(),
        }),
        Opcode::FILL => Body::Fill(Fill { msgh: n.msgh() }),
        Opcode::READ_RESP => Body::ReadResp(ReadResp {
            msgh: n.msgh(),
            payload,
        }),
        Opcode::ATOMIC_RESP => Body::AtomicResp(AtomicResp {
            msgh: n.msgh(),
            header: AtomicRespHeader { original: n.u64() },
        }),
        Opcode::ACK => Body::Ack(Ack { header: n.ack() }),
        Opcode::ACK_SACK => Body::AckSack(AckSack {
            header: n.ack(),
            sack: Sack(n.bytes()),
        }),
        Opcode::NAK => Body::Nak(Nak {
            code: NakCode(n.u8()),
            scope: NakScope(n.u8()),
            stream: n.u16(),
            msn: Msn::new(n.u32()),
            rsvd: n.u8(),
            offending_psn: Psn::new(n.u32()),
            detail: n.u32(),
        }),
        Opcode::OPEN => Body::Open(Open {
            params: n.params(),
            planes: planes[0],
            padding: n.bytes(),
        }),
        Opcode::ACCEPT => Body::Accept(Accept {
            params: n.params(),
            planes: planes[0],
            cookie: n.bytes(),
        }),
        Opcode::REJECT => Body::Reject(Reject {
            reason: n.u8(),
            ver_min: n.u8(),
            ver_max: n.u8(),
            rsvd: n.u8(),
            nonce: n.u64(),
            detail: n.u32(),
        }),
        Opcode::CONFIRM => Body::Confirm(Confirm {
            params: n.params(),
            planes: planes[0],
            cookie: n.bytes(),
            accepted: n.params(),
            accepted_planes: planes[1],
        }),
        Opcode::CLOSE => Body::Close(Close {
            reason: n.u16(),
            rsvd: n.u16(),
        }),
        Opcode::CLOSE_ACK => Body::CloseAck(CloseAck {
            reason: n.u16(),
            rsvd: n.u16(),
        }),
        Opcode::CONFIRM_ACK => Body::ConfirmAck(ConfirmAck { nonce: n.u64() }),
        Opcode::PATH_PROBE => Body::PathProbe(PathProbe {
            highest_psn: Psn::new(n.u32()),
        }),
        Opcode::PATH_PROBE_ACK => Body::PathProbeAck(PathProbeAck {
            timestamp_echo: n.u32(),
            cum_psn: Psn::new(n.u32()),
            highest_psn: Psn::new(n.u32()),
            hint_epoch: n.u8(),
            rate_hint: U24::new(n.u32()),
            sack: Sack(n.bytes()),
        }),
        Opcode::PATH_CHANGE => Body::PathChange(PathChange {
            source_port: n.u16(),
            plane: n.u8(),
            rsvd: n.u8(),
            next_psn: Psn::new(n.u32()),
        }),
        Opcode::PATH_RETIRE => Body::PathRetire(PathRetire {
            highest_psn: Psn::new(n.u32()),
            reason: RetireReason(n.u8()),
            rsvd: U24::new(n.u32()),
        }),
        Opcode::PATH_RETIRED => Body::PathRetired(PathRetired {
            cum_psn: Psn::new(n.u32()),
            sack: Sack(n.bytes()),
        }),
        Opcode::RATE_HINT => Body::RateHint(RateHint {
            hint_epoch: n.u8(),
            rate_hint: U24::new(n.u32()),
        }),
        Opcode::STREAM_RESET => Body::StreamReset(StreamReset {
            stream: n.u16(),
            code: NakCode(n.u8()),
            rsvd_a: n.u8(),
            msn: Msn::new(n.u32()),
            rsvd_b: n.u8(),
        }),
        Opcode::STREAM_RESET_ACK => Body::StreamResetAck(StreamResetAck {
            stream: n.u16(),
            rsvd: n.u16(),
        }),
        Opcode::RQ_CREDIT => Body::RqCredit(RqCredit {
            stream: n.u16(),
            kind: n.u8(),
            rsvd_a: n.u8(),
            rq_limit: Rqsn::new(n.u16()),
            rsvd_b: n.u16(),
        }),
        Opcode::STREAM_OPEN => Body::StreamOpen(StreamOpen {
            stream: n.u16(),
            status: n.u16(),
            rsvd_a: n.u8(),
            first_msn: Msn::new(n.u32()),
            first_rqsn: Rqsn::new(n.u16()),
            rq_limit: Rqsn::new(n.u16()),
            rsvd_b: n.u8(),
            src_qpn: U24::new(n.u32()),
            rsvd_c: n.u8(),
            dst_qpn: U24::new(n.u32()),
        }),
        Opcode::STREAM_OPEN_ACK => Body::StreamOpenAck(StreamOpenAck {
            stream: n.u16(),
            status: n.u16(),
            rsvd_a: n.u8(),
            first_msn: Msn::new(n.u32()),
            first_rqsn: Rqsn::new(n.u16()),
            rq_limit: Rqsn::new(n.u16()),
            rsvd_b: n.u8(),
            src_qpn: U24::new(n.u32()),
            rsvd_c: n.u8(),
            dst_qpn: U24::new(n.u32()),
        }),
        unknown => {
            assert_eq!(unknown.name(), None, "a packet type without a line here");
            // The padding of an unknown packet is part of its bytes.
            cbh.pad = n.u8() & 3;
            Body::Unknown(Unknown { bytes: payload })
        }
    };
    if body.payload().is_some() {
        cbh.pad = pad(payload);
    }
    Packet { cbh, body }
}

/// The same packet with every value legal that was not; what was legal stays.
pub fn legal<'a>(opcode: Opcode, n: &mut Numbers<'_>, payload: &'a [u8]) -> Packet<'a> {
    let Packet { mut cbh, mut body } = any(opcode, n, payload);
    if !opcode.is_version_independent() {
        cbh.version = VERSION;
    }
    cbh.flags = cbh.flags.without(Flags::RESERVED);
    cbh.rsvd = 0;
    if opcode.name().is_some() && !opcode.names_path() {
        (cbh.path, cbh.epoch) = (0, 0);
    }
    match &mut body {
        Body::Send(send) => legal_message(&mut send.msgh, n, payload, MFlags(0)),
        Body::SendImm(send) => legal_message(&mut send.msgh, n, payload, MFlags::IMM),
        Body::SendInv(send) => legal_message(&mut send.msgh, n, payload, MFlags::INV),
        Body::Write(write) => {
            legal_message(&mut write.msgh, n, payload, MFlags(0));
            write.msgh.rqsn = Rqsn::new(0);
            write.tagh.imm = 0;
            legal_address(&mut write.tagh, &write.msgh, 1);
        }
        Body::WriteImm(write) => {
            legal_message(&mut write.msgh, n, payload, MFlags::IMM);
            legal_address(&mut write.tagh, &write.msgh, 1);
        }
        Body::ReadReq(read) => {
            let len = read.msgh.len.min(MAX_MSG_LEN);
            legal_single(&mut read.msgh, MFlags(0), len);
            read.tagh.imm = 0;
            legal_address(&mut read.tagh, &read.msgh, 1);
        }
        Body::CmpSwap(swap) => {
            legal_single(&mut swap.msgh, MFlags(0), 8);
            swap.tagh.imm = 0;
            legal_address(&mut swap.tagh, &swap.msgh, 8);
        }
        Body::FetchAdd(add) => {
            legal_single(&mut add.msgh, MFlags(0), 8);
            add.tagh.imm = 0;
            legal_address(&mut add.tagh, &add.msgh, 8);
            add.atomic.compare = 0;
        }
        Body::Fill(fill) => {
            fill.msgh = Msgh {
                stream: fill.msgh.stream,
                rqsn: Rqsn::new(0),
                mflags: MFlags(0),
                msn: Msn::new(0),
                offset: 0,
                len: 0,
            };
        }
        Body::ReadResp(answer) => {
            legal_message(&mut answer.msgh, n, payload, MFlags::RESP);
            answer.msgh.rqsn = Rqsn::new(0);
        }
        Body::AtomicResp(answer) => legal_single(&mut answer.msgh, MFlags::RESP, 8),
        Body::Ack(ack) => ack.header.ack_flags &= !AckFlags::RESERVED.0,
        Body::AckSack(ack) => {
            ack.header.ack_flags &= !AckFlags::RESERVED.0;
            ack.sack.0[0] &= 0x7f;
        }
        Body::Nak(nak) => {
            nak.rsvd = 0;
            cbh.dcid = match nak.code {
                NakCode::UNKNOWN_CID => U24::new(0),
                _ => U24::new(cbh.dcid.value().max(1)),
            };
        }
        Body::Open(open) => {
            cbh.dcid = U24::new(0);
            open.padding = [0; 32];
            legal_params(&mut open.params);
        }
        Body::Accept(accept) => legal_params(&mut accept.params),
        Body::Reject(reject) => {
            reject.rsvd = 0;
            reject.reason = reject.reason.max(1);
        }
        Body::Confirm(confirm) => {
            legal_params(&mut confirm.params);
            legal_params(&mut confirm.accepted);
        }
        Body::Close(close) => close.rsvd = 0,
        Body::CloseAck(close) => close.rsvd = 0,
        Body::ConfirmAck(_) | Body::PathProbe(_) | Body::RateHint(_) => {}
        Body::PathChange(change) => {
            change.rsvd = 0;
            change.source_port = change.source_port.max(1);
            change.plane %= 8;
        }
        Body::PathRetire(retire) => retire.rsvd = U24::new(0),
        Body::PathRetired(retired) => retired.sack.0[0] &= 0x7f,
        Body::StreamReset(reset) => {
            (reset.rsvd_a, reset.rsvd_b) = (0, 0);
            if reset.code.0 == 0 {
                reset.msn = Msn::new(0);
            }
        }
        Body::StreamResetAck(ack) => ack.rsvd = 0,
        Body::PathProbeAck(ack) => ack.sack.0[0] &= 0x7f,
        Body::RqCredit(credit) => {
            (credit.rsvd_a, credit.rsvd_b) = (0, 0);
            credit.kind %= 2;
        }
        Body::StreamOpen(open) => (open.rsvd_a, open.rsvd_b, open.rsvd_c) = (0, 0, 0),
        Body::StreamOpenAck(open) => (open.rsvd_a, open.rsvd_b, open.rsvd_c) = (0, 0, 0),
        Body::Unknown(_) => cbh.pad = 0,
    }
    Packet { cbh, body }
}

fn legal_params(params: &mut Params) {
    params.rsvd_a = 0;
}

/// A message that is one packet without payload.
fn legal_single(msgh: &mut Msgh, kind: MFlags, len: u32) {
    msgh.rqsn = Rqsn::new(0);
    msgh.mflags = MFlags::SOM.with(MFlags::EOM).with(kind);
    (msgh.offset, msgh.len) = (0, len);
}

/// An address that is a multiple of `unit` and does not wrap.
fn legal_address(tagh: &mut Tagh, msgh: &Msgh, unit: u64) {
    let highest = u64::MAX - u64::from(msgh.len);
    tagh.va = tagh.va.min(highest) / unit * unit;
}

/// Puts the payload somewhere into a message of legal length.
fn legal_message(msgh: &mut Msgh, n: &mut Numbers<'_>, payload: &[u8], kind: MFlags) {
    let size = payload.len() as u32;
    let room = MAX_MSG_LEN - size;
    let (before, behind) = match (size, n.u8() % 4) {
        // An empty packet is an empty message.
        (0, _) | (_, 0) => (0, 0),
        (_, 1) => (0, n.u32() % (room + 1)),
        (_, 2) => (n.u32() % (room + 1), 0),
        _ => {
            let before = n.u32() % (room + 1);
            (before, n.u32() % (room - before + 1))
        }
    };
    msgh.offset = before;
    msgh.len = before + size + behind;
    let start = if before == 0 { MFlags::SOM } else { MFlags(0) };
    let end = if behind == 0 { MFlags::EOM } else { MFlags(0) };
    msgh.mflags = start.with(end).with(kind);
}
