//! Small traces, written packet by packet: what passes the tap of one judged side, and what the parties say.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use metaroce_conformance::evidence::{Event, What};
use metaroce_conformance::trace::Side;
use metaroce_wire::crc::PseudoHeader;
use metaroce_wire::frame::Ecn;
use metaroce_wire::metaroce::{
    Accept, Ack, AckHeader, AckSack, Body, Cbh, Close, CloseAck, Confirm, ConfirmAck, Features,
    Flags, MFlags, Msgh, Nak, NakCode, NakScope, Opcode, Open, Packet, Params, PathProbe,
    PathProbeAck, Planes, RqCredit, Sack, Send, StreamOpen, StreamOpenAck, Tagh, U24, Write,
};
use metaroce_wire::serial::{Msn, Psn, Rqsn};

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
/// Payload bytes per packet.
pub const P: u32 = 256;
/// Where the peer may write, or the judged side may.
pub const VA: u64 = 0x10_0000;
pub const RKEY: u32 = 0x1122_3344;
/// First MSN and RQSN of the stream.
pub const FIRST_MSN: u32 = 0xff_ffff;
pub const FIRST_RQSN: u16 = 0xfffe;
/// Delay of acknowledgments that both sides declare, us.
pub const ACK_DELAY_US: u16 = 200;

/// A packet that is not yet sealed: it can still be changed.
#[derive(Clone)]
pub struct Pkt {
    pub bytes: Vec<u8>,
    pub port: u16,
    pub ecn: Ecn,
    pub dst_port: u16,
    pub src: Option<IpAddr>,
    pub seal: bool,
}

impl Pkt {
    pub fn opcode(&self) -> Opcode {
        Opcode(self.bytes[1])
    }
    pub fn psn(&self) -> u32 {
        self.u32(8)
    }
    pub fn stamp(&self) -> u32 {
        self.u32(12)
    }
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.bytes[at..at + 4].try_into().unwrap())
    }
    pub fn put(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }
    pub fn put16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
    pub fn flag(mut self, flags: Flags) -> Self {
        self.bytes[2] |= flags.0;
        self
    }
    pub fn marked(mut self, ecn: Ecn) -> Self {
        self.ecn = ecn;
        self
    }
    pub fn with(mut self, edit: impl FnOnce(&mut Self)) -> Self {
        edit(&mut self);
        self
    }
}

#[derive(Clone)]
pub struct Item {
    pub time: u64,
    pub sent: bool,
    pub pkt: Pkt,
}

/// A message: number in the stream counted from 0, opcode, length.
#[derive(Clone, Copy)]
pub struct Msg {
    pub index: u32,
    pub send: Option<u16>,
    pub len: u32,
}

pub fn write(index: u32, len: u32) -> Msg {
    Msg {
        index,
        send: None,
        len,
    }
}

pub fn send(index: u32, nth: u16, len: u32) -> Msg {
    Msg {
        index,
        send: Some(nth),
        len,
    }
}

#[derive(Default, Clone)]
struct Rx {
    arrived: BTreeSet<i64>,
    cum: i64,
    stamp: u32,
    rtx: bool,
    ce: u32,
    ect: u32,
    duplicate: bool,
}

/// A trace at the tap of `me`.
#[derive(Clone)]
pub struct Trace {
    pub me: Side,
    pub now: u64,
    pub items: Vec<Item>,
    pub events: Vec<Event>,
    pub allowance: u64,
    pub jitter: u64,
    pub mine: Params,
    pub theirs: Params,
    pub limit: u16,
    /// Payload bytes per packet.
    pub p: u32,
    rx: BTreeMap<u8, Rx>,
    next: BTreeMap<u8, u32>,
    transaction: u32,
}

fn params(side: Side) -> Params {
    Params {
        ver_min: 1,
        ver_max: 1,
        paths: 2,
        rsvd_a: 0,
        scid: U24::new(0x00a0_0001 + side.index() as u32),
        nonce: 0x0102_0304_0506_0708 + side.index() as u64,
        isn: Psn::new(0xffff_fffe - side.index() as u32),
        service_id: 1,
        streams: 1,
        msg_window: 4,
        payload_size: P as u16,
        vector_width: 256,
        ts_unit: 1,
        ack_delay: ACK_DELAY_US,
        hint_interval: 0,
        hint_support: 0,
        extra_planes: 0,
        read_depth: 0,
        atomic_depth: 0,
        features: Features(0),
    }
}

pub fn address(side: Side) -> SocketAddr {
    SocketAddr::new([192, 0, 2, 1 + side.index() as u8].into(), 49200)
}

impl Trace {
    pub fn new(me: Side) -> Self {
        Self {
            me,
            now: MS,
            items: Vec::new(),
            events: Vec::new(),
            allowance: 0,
            jitter: 0,
            mine: params(me),
            theirs: params(me.other()),
            limit: FIRST_RQSN.wrapping_add(8),
            p: P,
            rx: BTreeMap::new(),
            next: BTreeMap::new(),
            transaction: 700,
        }
    }

    pub fn wait(&mut self, ns: u64) {
        self.now += ns;
    }

    /// The judged side sends.
    pub fn tx(&mut self, pkt: Pkt) -> usize {
        self.push(true, pkt)
    }

    /// The judged side gets.
    pub fn get(&mut self, pkt: Pkt) -> usize {
        self.push(false, pkt)
    }

    fn push(&mut self, sent: bool, pkt: Pkt) -> usize {
        self.items.push(Item {
            time: self.now,
            sent,
            pkt,
        });
        self.items.len() - 1
    }

    pub fn say(&mut self, side: Side, what: What) {
        self.events.push(Event {
            t_ns: self.now,
            side,
            what,
        });
    }

    fn header(&self, opcode: Opcode, mine: bool) -> Cbh {
        let dcid = if mine {
            self.theirs.scid
        } else {
            self.mine.scid
        };
        Cbh {
            timestamp: self.now as u32,
            ..Cbh::new(opcode, dcid)
        }
    }

    pub fn emit(&self, cbh: Cbh, body: Body<'_>) -> Pkt {
        let packet = Packet { cbh, body };
        let mut bytes = vec![0; packet.wire_len()];
        let anywhere = PseudoHeader::new([0, 0, 0, 0].into(), address(Side::A));
        packet.emit(&mut bytes, &anywhere).unwrap();
        Pkt {
            bytes,
            port: 50_000,
            ecn: Ecn::NotEct,
            dst_port: 49200,
            src: None,
            seal: true,
        }
    }

    /// A control packet of the judged side, or of its peer, under a transaction id.
    pub fn control(&self, mine: bool, opcode: Opcode, transaction: u32, body: Body<'_>) -> Pkt {
        let cbh = Cbh {
            psn: Psn::new(transaction),
            ..self.header(opcode, mine)
        };
        self.emit(cbh, body)
    }

    pub fn transaction(&mut self) -> u32 {
        self.transaction += 1;
        self.transaction
    }

    // Set-up.

    pub fn open_pkt(&self, mine: bool, transaction: u32) -> Pkt {
        let params = if mine { self.mine } else { self.theirs };
        let open = Open {
            params,
            planes: Planes::NONE,
            padding: [0; 32],
        };
        let pkt = self.control(mine, Opcode::OPEN, transaction, Body::Open(open));
        pkt.with(|pkt| pkt.bytes[5..8].fill(0))
    }

    pub fn accept_pkt(&self, mine: bool, transaction: u32) -> Pkt {
        let params = if mine { self.mine } else { self.theirs };
        let accept = Accept {
            params,
            planes: Planes::NONE,
            cookie: [7; 32],
        };
        self.control(mine, Opcode::ACCEPT, transaction, Body::Accept(accept))
    }

    pub fn confirm_pkt(&self, mine: bool, transaction: u32) -> Pkt {
        let (params, accepted) = if mine {
            (self.mine, self.theirs)
        } else {
            (self.theirs, self.mine)
        };
        let confirm = Confirm {
            params,
            planes: Planes::NONE,
            cookie: [7; 32],
            accepted,
            accepted_planes: Planes::NONE,
        };
        self.control(mine, Opcode::CONFIRM, transaction, Body::Confirm(confirm))
    }

    pub fn confirm_ack_pkt(&self, mine: bool, transaction: u32) -> Pkt {
        let opener = if mine { self.theirs } else { self.mine };
        let body = ConfirmAck {
            nonce: opener.nonce,
        };
        self.control(
            mine,
            Opcode::CONFIRM_ACK,
            transaction,
            Body::ConfirmAck(body),
        )
    }

    pub fn stream_open_pkt(&self, mine: bool, transaction: u32, stream: u16) -> Pkt {
        let open = StreamOpen {
            stream,
            status: 0,
            rsvd_a: 0,
            first_msn: Msn::new(FIRST_MSN),
            first_rqsn: Rqsn::new(FIRST_RQSN),
            rq_limit: Rqsn::new(self.limit),
            rsvd_b: 0,
            src_qpn: U24::new(1),
            rsvd_c: 0,
            dst_qpn: U24::new(0),
        };
        self.control(
            mine,
            Opcode::STREAM_OPEN,
            transaction,
            Body::StreamOpen(open),
        )
    }

    pub fn stream_ack_pkt(&self, mine: bool, transaction: u32, stream: u16) -> Pkt {
        let ack = StreamOpenAck {
            stream,
            status: 0,
            rsvd_a: 0,
            first_msn: Msn::new(FIRST_MSN),
            first_rqsn: Rqsn::new(FIRST_RQSN),
            rq_limit: Rqsn::new(self.limit),
            rsvd_b: 0,
            src_qpn: U24::new(2),
            rsvd_c: 0,
            dst_qpn: U24::new(1),
        };
        self.control(
            mine,
            Opcode::STREAM_OPEN_ACK,
            transaction,
            Body::StreamOpenAck(ack),
        )
    }

    /// OPEN, ACCEPT, CONFIRM, CONFIRM_ACK; the initiator is A.
    pub fn connect(&mut self) {
        let initiator = self.me == Side::A;
        let open = self.open_pkt(initiator, 11);
        self.push(initiator, open);
        self.wait(2 * MS);
        let accept = self.accept_pkt(!initiator, 11);
        self.push(!initiator, accept);
        let confirm = self.confirm_pkt(initiator, 12);
        self.push(initiator, confirm);
        self.wait(2 * MS);
        let answer = self.confirm_ack_pkt(!initiator, 12);
        self.push(!initiator, answer);
    }

    /// The initiator opens stream 0.
    pub fn open_stream(&mut self) {
        let initiator = self.me == Side::A;
        let open = self.stream_open_pkt(initiator, 13, 0);
        self.push(initiator, open);
        self.wait(2 * MS);
        let answer = self.stream_ack_pkt(!initiator, 13, 0);
        self.push(!initiator, answer);
    }

    /// A connection with stream 0 open.
    pub fn ready(me: Side) -> Self {
        let mut t = Self::new(me);
        t.connect();
        t.open_stream();
        t.wait(MS);
        t
    }

    // Data and acknowledgments.

    fn isn(&self, mine: bool) -> Psn {
        if mine { self.mine.isn } else { self.theirs.isn }
    }

    /// Piece `piece` of a message, as the packet at `place` of a path.
    pub fn data(&self, mine: bool, path: u8, place: i64, msg: Msg, piece: u32) -> Pkt {
        let offset = piece * self.p;
        let len = msg.len.saturating_sub(offset).min(self.p) as usize;
        let payload: Vec<u8> = (0..len)
            .map(|i| (i as u32 + msg.index + piece) as u8)
            .collect();
        let mut mflags = MFlags(0);
        if offset == 0 {
            mflags = mflags.with(MFlags::SOM);
        }
        if offset + self.p >= msg.len {
            mflags = mflags.with(MFlags::EOM);
        }
        let msgh = Msgh {
            stream: 0,
            rqsn: Rqsn::new(msg.send.map_or(0, |nth| FIRST_RQSN.wrapping_add(nth))),
            mflags,
            msn: Msn::new(FIRST_MSN).add(msg.index),
            offset,
            len: msg.len,
        };
        let opcode = if msg.send.is_some() {
            Opcode::SEND
        } else {
            Opcode::WRITE
        };
        let cbh = Cbh {
            path,
            psn: self.isn(mine).add(place as u32),
            ..self.header(opcode, mine)
        };
        let payload = &payload;
        let tagh = Tagh {
            va: VA + u64::from(msg.index) * 0x1000,
            rkey: RKEY,
            imm: 0,
        };
        let pkt = match opcode {
            Opcode::SEND => self.emit(cbh, Body::Send(Send { msgh, payload })),
            _ => self.emit(
                cbh,
                Body::Write(Write {
                    msgh,
                    tagh,
                    payload,
                }),
            ),
        };
        pkt.marked(Ecn::Ect0)
            .with(|pkt| pkt.port = port(mine, path))
    }

    /// The judged side sends the next new packet of a path.
    pub fn send_new(&mut self, path: u8, msg: Msg, piece: u32) -> usize {
        let next = self.next.entry(path).or_default();
        let place = i64::from(*next);
        *next += 1;
        let pkt = self.data(true, path, place, msg, piece);
        self.tx(pkt)
    }

    /// The judged side sends an earlier packet again, now.
    pub fn resend(&mut self, item: usize) -> usize {
        let now = self.now as u32;
        let again = self.items[item].pkt.clone().flag(Flags::RTX);
        self.tx(again.with(|pkt| pkt.put(12, now)))
    }

    /// The judged side is sent an acknowledgment of a path: cumulative place, bits, and the timestamp of its trigger.
    pub fn acked(&mut self, path: u8, cum: i64, bits: &[u32], stamp: u32) -> usize {
        let ack = self.ack(false, path, cum, bits, stamp);
        self.get(ack)
    }

    pub fn ack(&self, mine: bool, path: u8, cum: i64, bits: &[u32], stamp: u32) -> Pkt {
        let mut sack = Sack::EMPTY;
        bits.iter().for_each(|bit| sack.set(*bit));
        let header = AckHeader {
            timestamp_echo: stamp,
            ack_delay: 0,
            ack_flags: 0x8000,
            ce_count: 0,
            ect_count: 0,
            hint_epoch: 0,
            rate_hint: U24::new(0xff_ffff),
            stream: 0,
            rq_limit: Rqsn::new(self.limit),
        };
        let opcode = if bits.is_empty() {
            Opcode::ACK
        } else {
            Opcode::ACK_SACK
        };
        let cbh = Cbh {
            path,
            psn: self.isn(!mine).add(cum as u32),
            ..self.header(opcode, mine)
        };
        let body = if bits.is_empty() {
            Body::Ack(Ack { header })
        } else {
            Body::AckSack(AckSack { header, sack })
        };
        self.emit(cbh, body)
    }

    /// The judged side gets data of its peer at a place of a path.
    pub fn arrive(&mut self, path: u8, place: i64, msg: Msg, piece: u32) -> usize {
        let pkt = self.data(false, path, place, msg, piece);
        self.arrive_pkt(pkt)
    }

    /// The same, with the packet given.
    pub fn arrive_pkt(&mut self, pkt: Pkt) -> usize {
        let place = i64::from(Psn::new(pkt.psn()).distance_from(self.theirs.isn) as i32);
        let rx = self.rx.entry(pkt.bytes[3]).or_insert_with(|| Rx {
            cum: -1,
            ..Rx::default()
        });
        rx.stamp = pkt.stamp();
        rx.rtx = Flags(pkt.bytes[2]).has(Flags::RTX);
        if rx.arrived.insert(place) {
            match pkt.ecn {
                Ecn::Ce => rx.ce += 1,
                Ecn::NotEct => {}
                _ => rx.ect += 1,
            }
        } else {
            rx.duplicate = true;
        }
        while rx.arrived.contains(&(rx.cum + 1)) {
            rx.cum += 1;
        }
        self.get(pkt)
    }

    /// The judged side acknowledges what has arrived on a path, as it should.
    pub fn reply(&mut self, path: u8) -> usize {
        let pkt = self.reply_pkt(path);
        self.tx(pkt)
    }

    pub fn reply_pkt(&mut self, path: u8) -> Pkt {
        let rx = self.rx.get_mut(&path).unwrap();
        let duplicate = std::mem::take(&mut rx.duplicate);
        let rx = rx.clone();
        let bits: Vec<u32> = rx
            .arrived
            .range(rx.cum + 1..)
            .map(|at| (at - rx.cum - 1) as u32)
            .collect();
        let pkt = self.ack(true, path, rx.cum, &bits, rx.stamp);
        pkt.with(|pkt| {
            if duplicate {
                pkt.bytes[22] |= 0x40;
            }
            if rx.rtx {
                pkt.bytes[2] |= Flags::RTXE.0;
            }
            pkt.put(24, rx.ce);
            pkt.put(28, rx.ect);
        })
    }

    pub fn probe_pkt(&self, mine: bool, path: u8, transaction: u32, highest: i64) -> Pkt {
        let cbh = Cbh {
            path,
            psn: Psn::new(transaction),
            ..self.header(Opcode::PATH_PROBE, mine)
        };
        let body = PathProbe {
            highest_psn: self.isn(mine).add(highest as u32),
        };
        let pkt = self.emit(cbh, Body::PathProbe(body));
        pkt.with(|pkt| pkt.port = port(mine, path))
    }

    /// The answer to a probe, about the packets of the other direction.
    pub fn answer_pkt(&self, mine: bool, probe: &Pkt, cum: i64, bits: &[u32]) -> Pkt {
        let mut sack = Sack::EMPTY;
        bits.iter().for_each(|bit| sack.set(*bit));
        let cbh = Cbh {
            path: probe.bytes[3],
            psn: Psn::new(probe.psn()),
            ..self.header(Opcode::PATH_PROBE_ACK, mine)
        };
        let body = PathProbeAck {
            timestamp_echo: probe.stamp(),
            cum_psn: self.isn(!mine).add(cum as u32),
            highest_psn: Psn::new(probe.u32(16)),
            hint_epoch: 0,
            rate_hint: U24::new(0xff_ffff),
            sack,
        };
        self.emit(cbh, Body::PathProbeAck(body))
    }

    pub fn nak_pkt(&self, mine: bool, refused: &Pkt, code: NakCode, msg: u32) -> Pkt {
        let cbh = Cbh {
            path: refused.bytes[3],
            epoch: refused.bytes[0] & 0x0f,
            ..self.header(Opcode::NAK, mine)
        };
        let body = Nak {
            code,
            scope: NakScope::CONNECTION,
            stream: 0,
            msn: Msn::new(FIRST_MSN).add(msg),
            rsvd: 0,
            offending_psn: Psn::new(refused.psn()),
            detail: 0,
        };
        self.emit(cbh, Body::Nak(body))
    }

    pub fn close_pkt(&self, mine: bool, transaction: u32) -> Pkt {
        let body = Close { reason: 0, rsvd: 0 };
        self.control(mine, Opcode::CLOSE, transaction, Body::Close(body))
    }

    pub fn close_ack_pkt(&self, mine: bool, transaction: u32) -> Pkt {
        let body = CloseAck { reason: 0, rsvd: 0 };
        self.control(mine, Opcode::CLOSE_ACK, transaction, Body::CloseAck(body))
    }

    pub fn credit_pkt(&self, mine: bool, transaction: u32, tell: bool) -> Pkt {
        let body = RqCredit {
            stream: 0,
            kind: u8::from(tell),
            rsvd_a: 0,
            rq_limit: Rqsn::new(if tell { self.limit } else { 0 }),
            rsvd_b: 0,
        };
        self.control(mine, Opcode::RQ_CREDIT, transaction, Body::RqCredit(body))
    }
}

fn port(mine: bool, path: u8) -> u16 {
    (if mine { 50_000 } else { 53_000 }) + u16::from(path)
}
