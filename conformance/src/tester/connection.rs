//! The tester's end of a connection: just enough state to send sound packets, and the unsound ones a step asks for.

mod receive;
mod send;
mod set_up;

use std::collections::{BTreeMap, VecDeque};

use metaroce_wire::crc::PseudoHeader;
use metaroce_wire::frame::Ecn;
use metaroce_wire::metaroce::{
    Body, Cbh, Close, CloseAck, Features, Msgh, Opcode, Packet, Params, RqCredit, Sack, Send, U24,
    VERSION, Write, parse,
};
use metaroce_wire::serial::{Psn, Rqsn};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::Setup;
use super::script::{Expect, Mark, Step};
use crate::link::sim::Outgoing;
use receive::Arrivals;
use send::sound;

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
    /// The data packet before the last.
    before: Option<Sent>,
    left_out: Vec<(u8, Psn)>,
    arrivals: BTreeMap<u8, Arrivals>,
    /// Base and message header of the peer's latest data packet.
    latest: Option<(Cbh, Msgh)>,
    /// Receives promised on stream 0 so far.
    granted: Rqsn,
    acking: bool,
    answers: Vec<Opcode>,
    /// The latest data packet has been reported as arrived since the step began.
    reported: bool,
    data_seen: u64,
    image: Vec<u8>,
    slot: usize,
    /// Where the last sound Write went.
    last_slot: usize,
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
            features: Features(0),
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
            before: None,
            left_out: Vec::new(),
            arrivals: BTreeMap::new(),
            latest: None,
            granted: Rqsn::new(0),
            acking: true,
            answers: Vec::new(),
            reported: false,
            data_seen: 0,
            image: vec![crate::payload::FILL; setup.region_len],
            slot: 0,
            last_slot: 0,
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

    /// Whether the latest data packet has been reported as arrived: an acknowledgment by itself can be an earlier one.
    pub(super) fn is_reported(&self) -> bool {
        self.reported
    }

    fn note_report(&mut self, cbh: &Cbh, sack: &Sack) {
        let latest = self.last.as_ref().and_then(|sent| {
            let psn = sent.bytes.get(8..12)?.try_into().ok()?;
            Some((*sent.bytes.get(3)?, Psn::new(u32::from_be_bytes(psn))))
        });
        self.reported |= latest.is_some_and(|(path, psn)| {
            path == cbh.path && (psn.precedes_or_is(cbh.psn) || sack.contains(cbh.psn, psn))
        });
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
        self.reported = false;
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
            Step::Sane if again => self.resend(now, self.last.clone(), Mark::Ect0, out),
            Step::Sane => self.send_data(now, &sound(), out),
            Step::Data(data) => (0..data.count).try_for_each(|_| self.send_data(now, data, out)),
            Step::Repeat(mark) => self.resend(now, self.last.clone(), *mark, out),
            Step::RepeatBefore(mark) => self.resend(now, self.before.clone(), *mark, out),
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
        match &packet.body {
            Body::Ack(_) => self.note_report(&packet.cbh, &Sack::EMPTY),
            Body::AckSack(ack) => self.note_report(&packet.cbh, &ack.sack),
            _ => {}
        }
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
