//! A fake that says yes to everything: it opens connections, acknowledges all data without placing a byte, and reports
//! all work as done without sending a byte of it.

use std::collections::VecDeque;
use std::net::SocketAddr;

use metaroce_wire::crc::PseudoHeader;
use metaroce_wire::metaroce::{
    Accept, Ack, AckFlags, AckHeader, Body, Cbh, CloseAck, Confirm, ConfirmAck, Features, Opcode,
    Open, Packet, Params, PathProbeAck, Planes, RqCredit, Sack, StreamOpen, StreamOpenAck, U24,
    VERSION, parse_unsealed,
};
use metaroce_wire::serial::{Msn, Psn, Rqsn};

use super::{Shelf, shelf_calls};
use crate::adapter::{Engine, Work};
use crate::core::{Access, Config, Counters, Ecn, Event, Misuse, Region, Service, Transmit};

/// Pause before an unanswered request is repeated, ns.
const PAUSE: u64 = 50_000_000;
/// Receives that it promises on every stream.
const PROMISE: u16 = 16_384;
/// Its own connection id.
const OWN_ID: u32 = 0x00ac_ce55;

/// Says yes to everything.
pub(super) struct AckEverything {
    shelf: Shelf,
    config: Config,
    service: Option<Service>,
    /// Connection id of the peer.
    dcid: U24,
    mine: Option<Params>,
    established: bool,
    closed: bool,
    streams_left: u16,
    transaction: u32,
    request: Option<(u64, Transmit, Vec<u8>)>,
    out: VecDeque<(Transmit, Vec<u8>)>,
    events: VecDeque<Event>,
}

impl AckEverything {
    pub(super) fn new(config: Config) -> Self {
        Self {
            shelf: Shelf::default(),
            config,
            service: None,
            dcid: U24::new(0),
            mine: None,
            established: false,
            closed: false,
            streams_left: 0,
            transaction: 0,
            request: None,
            out: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    fn params(&self, service: &Service, paths: u16) -> Params {
        Params {
            ver_min: VERSION,
            ver_max: VERSION,
            paths,
            rsvd_a: 0,
            scid: U24::new(OWN_ID),
            nonce: self.config.seed,
            isn: Psn::new(service.initial_psn.unwrap_or(1)),
            service_id: service.service_id,
            streams: service.streams,
            msg_window: service.msg_window,
            payload_size: service.payload_size,
            vector_width: 256,
            ts_unit: 1,
            ack_delay: self.config.ack_delay_us,
            hint_interval: 0,
            hint_support: 0,
            extra_planes: 0,
            read_depth: 0,
            atomic_depth: 0,
            features: Features(0),
        }
    }

    fn emit(&mut self, dst: SocketAddr, cbh: Cbh, body: Body<'_>) -> Option<(Transmit, Vec<u8>)> {
        let packet = Packet { cbh, body };
        let mut bytes = vec![0; packet.wire_len()];
        let pseudo = PseudoHeader::new(self.config.local.ip(), dst);
        packet.emit(&mut bytes, &pseudo).ok()?;
        let transmit = Transmit {
            src_ip: self.config.local.ip(),
            src_port: self.config.source_ports.start,
            dst,
            ecn: Ecn::NotEct,
        };
        Some((transmit, bytes))
    }

    fn answer(&mut self, now: u64, dst: SocketAddr, to: &Cbh, opcode: Opcode, body: Body<'_>) {
        let path = if opcode.is_ack() || opcode == Opcode::PATH_PROBE_ACK {
            to.path
        } else {
            0
        };
        let cbh = Cbh {
            psn: to.psn,
            path,
            timestamp: now as u32,
            ..Cbh::new(opcode, self.dcid)
        };
        let emitted = self.emit(dst, cbh, body);
        self.out.extend(emitted);
    }

    fn ask(&mut self, now: u64, dst: SocketAddr, opcode: Opcode, body: Body<'_>, repeat: bool) {
        self.transaction += 1;
        let cbh = Cbh {
            psn: Psn::new(self.transaction),
            timestamp: now as u32,
            ..Cbh::new(opcode, self.dcid)
        };
        let Some((transmit, bytes)) = self.emit(dst, cbh, body) else {
            return;
        };
        if repeat {
            self.request = Some((now + PAUSE, transmit, bytes.clone()));
        }
        self.out.push_back((transmit, bytes));
    }

    fn establish(&mut self, paths: u16, streams: u16) {
        if !self.established {
            self.established = true;
            self.events.push_back(Event::Established {
                conn: 0,
                paths,
                streams,
            });
        }
    }

    fn close(&mut self, reason: u16) {
        if self.established && !self.closed {
            self.closed = true;
            self.events.push_back(Event::Closed { conn: 0, reason });
        }
    }

    fn on_packet(&mut self, now: u64, dst: SocketAddr, packet: &Packet<'_>) {
        let cbh = &packet.cbh;
        match packet.body {
            Body::Send(send) => self.acknowledge(now, dst, cbh, send.msgh.stream),
            Body::Write(write) => self.acknowledge(now, dst, cbh, write.msgh.stream),
            Body::Open(open) => {
                let Some(service) = self.service else { return };
                self.dcid = open.params.scid;
                let params = Params {
                    streams: service.streams.min(open.params.streams),
                    msg_window: service.msg_window.min(open.params.msg_window),
                    payload_size: service.payload_size.min(open.params.payload_size),
                    ..self.params(&service, service.paths.min(open.params.paths))
                };
                let body = Body::Accept(Accept {
                    params,
                    planes: Planes::NONE,
                    cookie: [0; 32],
                });
                self.answer(now, dst, cbh, Opcode::ACCEPT, body);
            }
            Body::Accept(accept) => {
                let Some(mine) = self.mine.filter(|_| self.dcid.value() == 0) else {
                    return;
                };
                self.dcid = accept.params.scid;
                let body = Body::Confirm(Confirm {
                    params: mine,
                    planes: Planes::NONE,
                    cookie: accept.cookie,
                    accepted: accept.params,
                    accepted_planes: accept.planes,
                });
                self.streams_left = accept.params.streams;
                self.ask(now, dst, Opcode::CONFIRM, body, true);
            }
            Body::Confirm(confirm) => {
                self.dcid = confirm.params.scid;
                let nonce = confirm.params.nonce;
                let body = Body::ConfirmAck(ConfirmAck { nonce });
                self.answer(now, dst, cbh, Opcode::CONFIRM_ACK, body);
                self.establish(confirm.accepted.paths, confirm.accepted.streams);
            }
            Body::ConfirmAck(_) => {
                let Some(mine) = self.mine.filter(|_| !self.established) else {
                    return;
                };
                self.request = None;
                for stream in (0..self.streams_left).map(|n| n * 2) {
                    let body = Body::StreamOpen(StreamOpen {
                        stream,
                        status: 0,
                        rsvd_a: 0,
                        first_msn: Msn::new(0),
                        first_rqsn: Rqsn::new(0),
                        rq_limit: Rqsn::new(PROMISE),
                        rsvd_b: 0,
                        src_qpn: U24::new(1),
                        rsvd_c: 0,
                        dst_qpn: U24::new(0),
                    });
                    self.ask(now, dst, Opcode::STREAM_OPEN, body, false);
                }
                self.establish(mine.paths, self.streams_left);
            }
            Body::StreamOpen(open) => {
                let body = Body::StreamOpenAck(StreamOpenAck {
                    stream: open.stream,
                    status: 0,
                    rsvd_a: 0,
                    first_msn: open.first_msn,
                    first_rqsn: open.first_rqsn,
                    rq_limit: open.first_rqsn.add(PROMISE),
                    rsvd_b: 0,
                    src_qpn: U24::new(1),
                    rsvd_c: 0,
                    dst_qpn: open.src_qpn,
                });
                self.answer(now, dst, cbh, Opcode::STREAM_OPEN_ACK, body);
            }
            Body::PathProbe(probe) => {
                let body = Body::PathProbeAck(PathProbeAck {
                    timestamp_echo: cbh.timestamp,
                    cum_psn: probe.highest_psn,
                    highest_psn: probe.highest_psn,
                    hint_epoch: 0,
                    rate_hint: U24::new(0xff_ffff),
                    sack: Sack::EMPTY,
                });
                self.answer(now, dst, cbh, Opcode::PATH_PROBE_ACK, body);
            }
            Body::RqCredit(credit) if credit.kind == 0 => {
                let body = Body::RqCredit(RqCredit {
                    kind: 1,
                    rq_limit: Rqsn::new(PROMISE),
                    ..credit
                });
                self.answer(now, dst, cbh, Opcode::RQ_CREDIT, body);
            }
            Body::Close(close) => {
                let reason = close.reason;
                let body = Body::CloseAck(CloseAck { reason, rsvd: 0 });
                self.answer(now, dst, cbh, Opcode::CLOSE_ACK, body);
                self.close(reason);
            }
            _ => {}
        }
    }

    fn acknowledge(&mut self, now: u64, dst: SocketAddr, cbh: &Cbh, stream: u16) {
        let body = Body::Ack(Ack {
            header: AckHeader {
                timestamp_echo: cbh.timestamp,
                ack_delay: 0,
                ack_flags: AckFlags::ECHO_VALID.0,
                ce_count: 0,
                ect_count: 0,
                hint_epoch: 0,
                rate_hint: U24::new(0x00ff_ffff),
                stream,
                rq_limit: Rqsn::new(PROMISE),
            },
        });
        self.answer(now, dst, cbh, Opcode::ACK, body);
    }
}

impl Engine for AckEverything {
    shelf_calls!();

    fn handle_datagram(&mut self, now: u64, from: SocketAddr, _: Ecn, bytes: &[u8]) {
        let dst = SocketAddr::new(from.ip(), self.config.local.port());
        if let Ok(packet) = parse_unsealed(bytes) {
            self.on_packet(now, dst, &packet);
        }
    }

    fn handle_timeout(&mut self, now: u64) {
        if let Some((due, transmit, bytes)) = &mut self.request
            && *due <= now
        {
            *due = now + PAUSE;
            self.out.push_back((*transmit, bytes.clone()));
        }
    }

    fn poll_transmit(&mut self, _: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        let (transmit, bytes) = self.out.pop_front()?;
        *out = bytes;
        Some(transmit)
    }

    fn poll_timeout(&self) -> Option<u64> {
        self.request.as_ref().map(|(due, ..)| *due)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn listen(&mut self, service: Service) -> Result<(), Misuse> {
        self.service = Some(service);
        Ok(())
    }

    fn connect(&mut self, now: u64, peer: SocketAddr, service: Service) -> Result<u32, Misuse> {
        let mine = self.params(&service, service.paths);
        self.mine = Some(mine);
        let body = Body::Open(Open {
            params: mine,
            planes: Planes::NONE,
            padding: [0; 32],
        });
        self.ask(now, peer, Opcode::OPEN, body, true);
        Ok(0)
    }

    fn post(&mut self, _: u64, work: &Work) -> Result<(), Misuse> {
        let byte_len = u32::try_from(work.len()).unwrap_or(u32::MAX);
        self.events
            .push_back(Event::Completion(work.succeeded(byte_len)));
        Ok(())
    }

    fn close(&mut self, _: u64, _: u32) -> Result<(), Misuse> {
        Self::close(self, 0);
        Ok(())
    }
}
