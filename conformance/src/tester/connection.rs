//! The tester's end of a connection: just enough state to send sound packets, and the unsound ones a step asks for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use metaroce_wire::crc::{self, PseudoHeader};
use metaroce_wire::frame::Ecn;
use metaroce_wire::metaroce::{
    Accept, Ack, AckFlags, AckHeader, AckSack, Body, Cbh, Close, CloseAck, Confirm, Flags, MFlags,
    Msgh, Nak, NakCode, NakScope, Opcode, Open, Packet, Params, PathProbe, PathProbeAck, RqCredit,
    Sack, Send, StreamOpen, Tagh, U24, VERSION, Write, parse,
};
use metaroce_wire::serial::{Msn, Psn, Rqsn};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::Setup;
use super::script::{Data, Expect, LyingAck, Mark, OpenStep, Operation, Refusal, Step};
use crate::link::sim::Outgoing;

type Outbox = VecDeque<(Outgoing, Vec<u8>)>;

/// Offset in the region at which the next sound Write goes, and how far apart they lie, bytes.
const SLOT: usize = 512;

/// A data packet that can be sent again.
#[derive(Debug, Clone)]
struct Sent {
    port: u16,
    bytes: Vec<u8>,
}

/// What an ACCEPT is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SetUp {
    /// The right CONFIRM.
    Connect,
    /// A CONFIRM with a wrong cookie.
    BadCookie,
    /// Nothing.
    Other,
}

/// What has arrived of the peer's data on one path.
#[derive(Debug, Default)]
struct Arrivals {
    cum: Psn,
    beyond: BTreeSet<u32>,
    timestamp: u32,
    ce: u32,
    ect: u32,
}

pub(super) struct Connection {
    setup: Setup,
    pseudo: PseudoHeader,
    params: Params,
    accepted: Option<Params>,
    confirm: Option<Vec<u8>>,
    close: Option<Vec<u8>>,
    stream_open: Option<Vec<u8>>,
    set_up: SetUp,
    confirmed: bool,
    open: bool,
    transaction: u32,
    next_psn: BTreeMap<u8, Psn>,
    next_msn: u32,
    next_rqsn: u16,
    last: Option<Sent>,
    left_out: Vec<(u8, Psn)>,
    arrivals: BTreeMap<u8, Arrivals>,
    /// Base and message header of the peer's latest data packet.
    latest: Option<(Cbh, Msgh)>,
    /// Receives promised on stream 0 so far.
    granted: Rqsn,
    acking: bool,
    answers: Vec<Opcode>,
    data_seen: u64,
    image: Vec<u8>,
    slot: usize,
    broken: Option<String>,
}

impl Connection {
    pub(super) fn new(setup: Setup) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(setup.seed);
        let params = Params {
            ver_min: VERSION,
            ver_max: VERSION,
            paths: setup.paths,
            rsvd_a: 0,
            // 1 at least: 0 is no connection id.
            scid: U24::new(random.next_u32() | 1),
            nonce: random.next_u64(),
            isn: Psn::new(setup.isn),
            service_id: setup.service_id,
            streams: 1,
            msg_window: 64,
            payload_size: setup.payload_size,
            vector_width: 256,
            ts_unit: 1,
            ack_delay: 1000,
            hint_interval: 0,
            hint_support: 0,
            extra_planes: 0,
            read_depth: 0,
            atomic_depth: 0,
            rsvd_b: 0,
        };
        Self {
            setup,
            pseudo: PseudoHeader::new(setup.local.ip(), setup.peer),
            params,
            accepted: None,
            confirm: None,
            close: None,
            stream_open: None,
            set_up: SetUp::Connect,
            confirmed: false,
            open: false,
            transaction: random.next_u32(),
            next_psn: BTreeMap::new(),
            next_msn: 0,
            next_rqsn: 0,
            last: None,
            left_out: Vec::new(),
            arrivals: BTreeMap::new(),
            latest: None,
            granted: Rqsn::new(0),
            acking: true,
            answers: Vec::new(),
            data_seen: 0,
            image: vec![crate::payload::FILL; setup.region_len],
            slot: 0,
            broken: None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    pub(super) fn image(&self) -> &[u8] {
        &self.image
    }

    pub(super) fn data_since_step(&self) -> u64 {
        self.data_seen
    }

    pub(super) fn has_answer(&self, expect: Expect) -> bool {
        let seen = |opcode| self.answers.contains(&opcode);
        match expect {
            Expect::Ack => self.answers.iter().any(|opcode| opcode.is_ack()),
            Expect::Nak => seen(Opcode::NAK),
            Expect::Reject => seen(Opcode::REJECT),
            Expect::Accept => seen(Opcode::ACCEPT),
            Expect::ConfirmAck => seen(Opcode::CONFIRM_ACK),
            Expect::CloseAck => seen(Opcode::CLOSE_ACK),
            Expect::ProbeAck => seen(Opcode::PATH_PROBE_ACK),
            Expect::Credit => seen(Opcode::RQ_CREDIT),
            Expect::Silence => false,
        }
    }

    /// Sends what `step` sends. `again` tells a repetition of a step that has not been answered.
    pub(super) fn perform(
        &mut self,
        now: u64,
        step: &Step,
        again: bool,
        out: &mut Outbox,
    ) -> Result<(), String> {
        if let Some(why) = &self.broken {
            return Err(why.clone());
        }
        self.answers.clear();
        self.data_seen = 0;
        match step {
            Step::Connect => self.advance_set_up(now, out),
            Step::Open(open) => self.send_other_open(now, open, out),
            Step::BadCookie => {
                self.set_up = SetUp::BadCookie;
                self.send_open(now, self.params, out)
            }
            Step::RepeatConfirm => self.resend_control(self.confirm.clone(), out),
            Step::RepeatClose => self.resend_control(self.close.clone(), out),
            Step::Close => {
                let body = Body::Close(Close { reason: 0, rsvd: 0 });
                let bytes = self.control(now, body, Opcode::CLOSE)?;
                self.close = Some(bytes.clone());
                self.push(0, Ecn::NotEct, bytes, out);
                Ok(())
            }
            Step::Sane if again => self.resend(now, Mark::Ect0, out),
            Step::Sane => self.send_data(now, &sound(), out),
            Step::Data(data) => (0..data.count).try_for_each(|_| self.send_data(now, data, out)),
            Step::Repeat(mark) => self.resend(now, *mark, out),
            Step::Fill => self.fill(now, out),
            Step::Probe(path) => self.probe(now, *path, out),
            Step::LyingAck(lie) => self.lie(now, lie, out),
            Step::AskCredit => {
                let ask = RqCredit {
                    stream: 0,
                    kind: 0,
                    rsvd_a: 0,
                    rq_limit: Rqsn::new(0),
                    rsvd_b: 0,
                };
                let bytes = self.control(now, Body::RqCredit(ask), Opcode::RQ_CREDIT)?;
                self.push(0, Ecn::NotEct, bytes, out);
                Ok(())
            }
            Step::Grant(count) => {
                self.granted = self.granted.add(*count);
                let tell = RqCredit {
                    stream: 0,
                    kind: 1,
                    rsvd_a: 0,
                    rq_limit: self.granted,
                    rsvd_b: 0,
                };
                let bytes = self.control(now, Body::RqCredit(tell), Opcode::RQ_CREDIT)?;
                self.push(0, Ecn::NotEct, bytes, out);
                Ok(())
            }
            Step::Refuse(refusal) => self.refuse(now, *refusal, out),
            Step::Acking(acking) => {
                self.acking = *acking;
                Ok(())
            }
            Step::Receive(_) | Step::Quiet(_) => Ok(()),
        }
    }

    /// Takes a datagram of the peer.
    pub(super) fn receive(&mut self, now: u64, ecn: Ecn, bytes: &[u8], out: &mut Outbox) {
        let pseudo = PseudoHeader::new(self.setup.peer.ip(), self.setup.local);
        let Ok(packet) = parse(bytes, &pseudo) else {
            return;
        };
        self.answers.push(packet.cbh.opcode);
        let done = match packet.body {
            Body::Accept(accept) => self.on_accept(now, &accept, out),
            Body::ConfirmAck(_) if !self.confirmed => {
                self.confirmed = true;
                self.send_stream_open(now, out)
            }
            Body::StreamOpenAck(_) => {
                self.open = true;
                Ok(())
            }
            Body::Close(close) => {
                let body = Body::CloseAck(CloseAck {
                    reason: close.reason,
                    rsvd: 0,
                });
                self.answer(now, &packet.cbh, body, Opcode::CLOSE_ACK, out)
            }
            Body::PathProbe(probe) => self.on_probe(now, &packet.cbh, &probe, out),
            Body::RqCredit(credit) if credit.kind == 0 => {
                let tell = RqCredit {
                    kind: 1,
                    rq_limit: self.granted,
                    ..credit
                };
                self.answer(
                    now,
                    &packet.cbh,
                    Body::RqCredit(tell),
                    Opcode::RQ_CREDIT,
                    out,
                )
            }
            Body::Send(Send { msgh, .. }) | Body::Write(Write { msgh, .. }) => {
                self.on_data(now, ecn, &packet.cbh, &msgh, out)
            }
            _ => Ok(()),
        };
        if let Err(why) = done {
            self.broken = Some(why);
        }
    }

    /// Sends whatever the set-up lacks next.
    fn advance_set_up(&mut self, now: u64, out: &mut Outbox) -> Result<(), String> {
        if self.confirmed {
            return self.send_stream_open(now, out);
        }
        match (self.set_up, self.confirm.clone()) {
            (SetUp::Connect, Some(confirm)) => self.resend_control(Some(confirm), out),
            _ => {
                self.set_up = SetUp::Connect;
                self.confirm = None;
                self.send_open(now, self.params, out)
            }
        }
    }

    fn send_open(&mut self, now: u64, params: Params, out: &mut Outbox) -> Result<(), String> {
        let body = Body::Open(Open {
            params,
            padding: [0; 32],
        });
        let bytes = self.control(now, body, Opcode::OPEN)?;
        self.push(0, Ecn::NotEct, bytes, out);
        Ok(())
    }

    /// An OPEN that makes no connection: its own connection id and nonce keep it apart from the one that does.
    fn send_other_open(
        &mut self,
        now: u64,
        open: &OpenStep,
        out: &mut Outbox,
    ) -> Result<(), String> {
        self.set_up = SetUp::Other;
        let other = Params {
            ver_min: open.ver_min,
            ver_max: open.ver_max,
            scid: U24::new(self.params.scid.value() ^ 2),
            nonce: !self.params.nonce,
            service_id: self.params.service_id ^ u32::from(open.unknown_service),
            ..self.params
        };
        self.send_open(now, other, out)
    }

    fn on_accept(&mut self, now: u64, accept: &Accept, out: &mut Outbox) -> Result<(), String> {
        if self.set_up == SetUp::Other || self.confirm.is_some() {
            return Ok(());
        }
        let mut cookie = accept.cookie;
        if self.set_up == SetUp::BadCookie {
            cookie[0] ^= 1;
        }
        self.accepted = Some(accept.params);
        let body = Body::Confirm(Confirm {
            params: self.params,
            cookie,
            accepted: accept.params,
        });
        let bytes = self.control(now, body, Opcode::CONFIRM)?;
        self.confirm = Some(bytes.clone());
        self.push(0, Ecn::NotEct, bytes, out);
        Ok(())
    }

    fn send_stream_open(&mut self, now: u64, out: &mut Outbox) -> Result<(), String> {
        if self.stream_open.is_none() {
            let body = Body::StreamOpen(StreamOpen {
                stream: 0,
                status: 0,
                rsvd_a: 0,
                first_msn: Msn::new(0),
                first_rqsn: Rqsn::new(0),
                rq_limit: Rqsn::new(0),
                rsvd_b: 0,
                src_qpn: U24::new(1),
                rsvd_c: 0,
                dst_qpn: U24::new(0),
            });
            self.stream_open = Some(self.control(now, body, Opcode::STREAM_OPEN)?);
        }
        self.resend_control(self.stream_open.clone(), out)
    }

    fn on_probe(
        &mut self,
        now: u64,
        cbh: &Cbh,
        probe: &PathProbe,
        out: &mut Outbox,
    ) -> Result<(), String> {
        if !self.acking {
            return Ok(());
        }
        let isn = self.peer_isn();
        let arrivals = self
            .arrivals
            .entry(cbh.path)
            .or_insert_with(|| Arrivals::before(isn));
        let body = Body::PathProbeAck(PathProbeAck {
            timestamp_echo: cbh.timestamp,
            cum_psn: arrivals.cum,
            highest_psn: probe.highest_psn,
            sack: arrivals.sack(),
        });
        let answer = Cbh {
            path: cbh.path,
            epoch: cbh.epoch,
            psn: cbh.psn,
            ..self.base(now, Opcode::PATH_PROBE_ACK)
        };
        let bytes = self.emit(&Packet { cbh: answer, body })?;
        self.push(0, Ecn::NotEct, bytes, out);
        Ok(())
    }

    fn on_data(
        &mut self,
        now: u64,
        ecn: Ecn,
        cbh: &Cbh,
        msgh: &Msgh,
        out: &mut Outbox,
    ) -> Result<(), String> {
        self.data_seen += 1;
        self.latest = Some((*cbh, *msgh));
        let isn = self.peer_isn();
        let arrivals = self
            .arrivals
            .entry(cbh.path)
            .or_insert_with(|| Arrivals::before(isn));
        let duplicate = arrivals.take(cbh.psn, ecn, cbh.timestamp);
        if !self.acking {
            return Ok(());
        }
        let sack = arrivals.sack();
        let mut ack_flags = AckFlags::ECHO_VALID.0;
        if duplicate {
            ack_flags |= AckFlags::DUPLICATE_SEEN.0;
        }
        let header = AckHeader {
            timestamp_echo: arrivals.timestamp,
            ack_delay: 0,
            ack_flags,
            ce_count: arrivals.ce,
            ect_count: arrivals.ect,
            hint_epoch: 0,
            rate_hint: U24::new(0xff_ffff),
            stream: msgh.stream,
            rq_limit: self.granted,
        };
        let cum = arrivals.cum;
        let flags = if cbh.flags.has(Flags::RTX) {
            Flags::RTXE
        } else {
            Flags(0)
        };
        self.send_ack(now, (cbh.path, cbh.epoch), flags, (cum, header, sack), out)
    }

    fn send_ack(
        &mut self,
        now: u64,
        (path, epoch): (u8, u8),
        flags: Flags,
        (cum, header, sack): (Psn, AckHeader, Sack),
        out: &mut Outbox,
    ) -> Result<(), String> {
        let (opcode, body) = if sack.is_empty() {
            (Opcode::ACK, Body::Ack(Ack { header }))
        } else {
            (Opcode::ACK_SACK, Body::AckSack(AckSack { header, sack }))
        };
        let cbh = Cbh {
            path,
            epoch,
            flags,
            psn: cum,
            ..self.base(now, opcode)
        };
        let bytes = self.emit(&Packet { cbh, body })?;
        self.push(0, Ecn::NotEct, bytes, out);
        Ok(())
    }

    fn lie(&mut self, now: u64, lie: &LyingAck, out: &mut Outbox) -> Result<(), String> {
        let isn = self.peer_isn();
        let arrivals = self
            .arrivals
            .entry(lie.path)
            .or_insert_with(|| Arrivals::before(isn));
        let mut sack = Sack::EMPTY;
        lie.bits.iter().for_each(|&bit| sack.set(bit));
        let header = AckHeader {
            timestamp_echo: arrivals.timestamp,
            ack_delay: 0,
            ack_flags: 0,
            ce_count: arrivals.ce,
            ect_count: arrivals.ect,
            hint_epoch: 0,
            rate_hint: U24::new(0xff_ffff),
            stream: 0,
            rq_limit: self.granted,
        };
        let cum = arrivals.cum.add(lie.cum_add as u32);
        self.send_ack(
            now,
            (lie.path, lie.epoch),
            Flags(0),
            (cum, header, sack),
            out,
        )
    }

    fn refuse(&mut self, now: u64, why: Refusal, out: &mut Outbox) -> Result<(), String> {
        let (of, msgh) = self.latest.ok_or("no data packet to refuse")?;
        let code = match why {
            Refusal::RemAccess => NakCode::REM_ACCESS,
            Refusal::Length => NakCode::LENGTH,
        };
        let body = Body::Nak(Nak {
            code,
            scope: NakScope::CONNECTION,
            stream: msgh.stream,
            msn: msgh.msn,
            rsvd: 0,
            offending_psn: of.psn,
            detail: 0,
        });
        let cbh = Cbh {
            path: of.path,
            epoch: of.epoch,
            ..self.base(now, Opcode::NAK)
        };
        let bytes = self.emit(&Packet { cbh, body })?;
        self.push(0, Ecn::NotEct, bytes, out);
        Ok(())
    }

    fn probe(&mut self, now: u64, path: u8, out: &mut Outbox) -> Result<(), String> {
        let highest_psn = self.next_psn(path).sub(1);
        self.transaction = self.transaction.wrapping_add(1);
        let cbh = Cbh {
            path,
            psn: Psn::new(self.transaction),
            ..self.base(now, Opcode::PATH_PROBE)
        };
        let bytes = self.emit(&Packet {
            cbh,
            body: Body::PathProbe(PathProbe { highest_psn }),
        })?;
        self.push(self.port(path), Ecn::NotEct, bytes, out);
        Ok(())
    }

    fn fill(&mut self, now: u64, out: &mut Outbox) -> Result<(), String> {
        for (path, psn) in std::mem::take(&mut self.left_out) {
            let data = Data { path, ..sound() };
            self.send_packet(now, &data, psn, Flags::RTX, out)?;
        }
        Ok(())
    }

    fn send_data(&mut self, now: u64, data: &Data, out: &mut Outbox) -> Result<(), String> {
        for _ in 0..data.gap {
            let psn = self.next_psn(data.path);
            self.left_out.push((data.path, psn));
            self.next_psn.insert(data.path, psn.add(1));
        }
        let next = self.next_psn(data.path);
        self.send_packet(now, data, next.add(data.ahead), Flags(0), out)?;
        if data.is_sound(self.setup.paths) {
            self.next_psn.insert(data.path, next.add(1));
        }
        Ok(())
    }

    fn send_packet(
        &mut self,
        now: u64,
        data: &Data,
        psn: Psn,
        extra: Flags,
        out: &mut Outbox,
    ) -> Result<(), String> {
        let len = usize::try_from(data.size.bytes())
            .unwrap_or(usize::MAX)
            .min(usize::from(self.setup.payload_size));
        let payload: Vec<u8> = (0..len)
            .map(|i| crate::payload::pattern(self.setup.seed ^ u64::from(self.next_msn), i as u64))
            .collect();
        let total = u32::try_from(len)
            .unwrap_or(u32::MAX)
            .saturating_add(data.more);
        let mflags = if data.more == 0 {
            MFlags::SOM.with(MFlags::EOM)
        } else {
            MFlags::SOM
        };
        let is_send = data.operation == Operation::Send;
        let msgh = Msgh {
            stream: data.stream,
            rqsn: Rqsn::new(if is_send { self.next_rqsn } else { 0 }),
            mflags,
            msn: Msn::new(self.next_msn),
            offset: 0,
            len: total,
        };
        let slot = self.slot;
        let (opcode, body) = if is_send {
            (
                Opcode::SEND,
                Body::Send(Send {
                    msgh,
                    payload: &payload,
                }),
            )
        } else {
            let va = self
                .setup
                .va
                .wrapping_add(slot as u64)
                .wrapping_add(data.va_add);
            let tagh = Tagh {
                va,
                rkey: self.setup.rkey ^ data.rkey_xor,
                imm: 0,
            };
            (
                Opcode::WRITE,
                Body::Write(Write {
                    msgh,
                    tagh,
                    payload: &payload,
                }),
            )
        };
        let flags = if data.ar {
            extra.with(Flags::AR)
        } else {
            extra
        };
        let cbh = Cbh {
            path: data.path,
            epoch: data.epoch,
            flags,
            psn,
            ..self.base(now, opcode)
        };
        let mut bytes = self.emit(&Packet { cbh, body })?;
        for edit in &data.edit {
            let len = bytes.len();
            let byte = bytes
                .get_mut(edit.at)
                .ok_or_else(|| format!("edit at byte {} of {len}", edit.at))?;
            *byte ^= edit.xor;
        }
        if data.cut > 0 {
            bytes.truncate(bytes.len().saturating_sub(data.cut));
        }
        if data.seal && (data.cut > 0 || !data.edit.is_empty()) {
            crc::seal(&self.pseudo, &mut bytes).map_err(|e| e.to_string())?;
        }
        if data.is_sound(self.setup.paths) {
            if !is_send {
                let end = slot + len;
                let place = self
                    .image
                    .get_mut(slot..end)
                    .ok_or("the region is too small for the script")?;
                place.copy_from_slice(&payload);
                self.slot += len.next_multiple_of(SLOT).max(SLOT);
            } else {
                self.next_rqsn = self.next_rqsn.wrapping_add(1);
            }
            self.next_msn += 1;
        }
        let port = self.port(data.path).wrapping_add(data.port_add);
        self.last = Some(Sent {
            port,
            bytes: bytes.clone(),
        });
        self.push(port, ecn(data.mark), bytes, out);
        Ok(())
    }

    /// The last data packet again, as a retransmission of it would look.
    fn resend(&mut self, now: u64, mark: Mark, out: &mut Outbox) -> Result<(), String> {
        let mut sent = self.last.clone().ok_or("nothing to repeat")?;
        let len = sent.bytes.len();
        if len > Cbh::LEN {
            sent.bytes[2] |= Flags::RTX.0;
            sent.bytes[12..16].copy_from_slice(&(now as u32).to_be_bytes());
        }
        crc::seal(&self.pseudo, &mut sent.bytes).map_err(|e| e.to_string())?;
        self.push(sent.port, ecn(mark), sent.bytes, out);
        Ok(())
    }

    fn resend_control(&mut self, bytes: Option<Vec<u8>>, out: &mut Outbox) -> Result<(), String> {
        let bytes = bytes.ok_or("nothing to repeat")?;
        self.push(0, Ecn::NotEct, bytes, out);
        Ok(())
    }

    fn answer(
        &mut self,
        now: u64,
        to: &Cbh,
        body: Body<'_>,
        opcode: Opcode,
        out: &mut Outbox,
    ) -> Result<(), String> {
        let cbh = Cbh {
            psn: to.psn,
            ..self.base(now, opcode)
        };
        let bytes = self.emit(&Packet { cbh, body })?;
        self.push(0, Ecn::NotEct, bytes, out);
        Ok(())
    }

    /// A new request under a new transaction id.
    fn control(&mut self, now: u64, body: Body<'_>, opcode: Opcode) -> Result<Vec<u8>, String> {
        self.transaction = self.transaction.wrapping_add(1);
        let cbh = Cbh {
            psn: Psn::new(self.transaction),
            ..self.base(now, opcode)
        };
        self.emit(&Packet { cbh, body })
    }

    fn base(&self, now: u64, opcode: Opcode) -> Cbh {
        let peer = self
            .accepted
            .filter(|_| opcode != Opcode::OPEN)
            .map_or(0, |params| params.scid.value());
        Cbh {
            timestamp: now as u32,
            ..Cbh::new(opcode, U24::new(peer))
        }
    }

    fn emit(&self, packet: &Packet<'_>) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; packet.wire_len()];
        packet
            .emit(&mut bytes, &self.pseudo)
            .map_err(|e| e.to_string())?;
        Ok(bytes)
    }

    fn push(&self, port: u16, ecn: Ecn, bytes: Vec<u8>, out: &mut Outbox) {
        let src_port = if port == 0 {
            self.setup.source_port_base
        } else {
            port
        };
        out.push_back((
            Outgoing {
                src_port,
                dst: self.setup.peer,
                ecn,
            },
            bytes,
        ));
    }

    fn port(&self, path: u8) -> u16 {
        self.setup.source_port_base + u16::from(path)
    }

    fn next_psn(&self, path: u8) -> Psn {
        self.next_psn.get(&path).copied().unwrap_or(self.params.isn)
    }

    fn peer_isn(&self) -> Psn {
        self.accepted.map_or(Psn::new(0), |params| params.isn)
    }
}

impl Arrivals {
    fn before(isn: Psn) -> Self {
        Self {
            cum: isn.sub(1),
            beyond: BTreeSet::new(),
            timestamp: 0,
            ce: 0,
            ect: 0,
        }
    }

    /// Notes an arrival; tells whether it is a duplicate.
    fn take(&mut self, psn: Psn, mark: Ecn, timestamp: u32) -> bool {
        self.timestamp = timestamp;
        if psn.precedes_or_is(self.cum) || !self.beyond.insert(psn.value()) {
            return true;
        }
        match mark {
            Ecn::Ce => self.ce += 1,
            Ecn::Ect0 | Ecn::Ect1 => self.ect += 1,
            Ecn::NotEct => {}
        }
        while self.beyond.remove(&self.cum.add(1).value()) {
            self.cum = self.cum.add(1);
        }
        false
    }

    fn sack(&self) -> Sack {
        let mut sack = Sack::EMPTY;
        for &psn in &self.beyond {
            let ahead = Psn::new(psn).distance_from(self.cum);
            if let Some(bit) = ahead.checked_sub(1) {
                sack.set(bit);
            }
        }
        sack
    }
}

/// The packet of [`Step::Sane`].
fn sound() -> Data {
    Data {
        operation: Operation::Write,
        path: 0,
        size: crate::units::Size::from_bytes(100),
        count: 1,
        gap: 0,
        ahead: 0,
        epoch: 0,
        stream: 0,
        rkey_xor: 0,
        va_add: 0,
        more: 0,
        ar: true,
        mark: Mark::Ect0,
        port_add: 0,
        edit: Vec::new(),
        cut: 0,
        seal: true,
        expect: Expect::Ack,
    }
}

fn ecn(mark: Mark) -> Ecn {
    match mark {
        Mark::Ect0 => Ecn::Ect0,
        Mark::Ect1 => Ecn::Ect1,
        Mark::Ce => Ecn::Ce,
        Mark::NotEct => Ecn::NotEct,
    }
}
