//! An endpoint: its memory, its connections, and the packets that belong to none.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use metaroce_wire::Error as WireError;
use metaroce_wire::crc::PseudoHeader;
use metaroce_wire::metaroce::{
    Accept, Body, Cbh, Confirm, ConfirmAck, Opcode, Open, Packet, Params, Planes, Reject,
    RejectReason, Sack, U24, VERSION, parse,
};
use metaroce_wire::serial::{Msn, Psn, Rqsn};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::config::{Access, Buffer, Config, Ecn, Misuse, Region, Service, Transmit};
use super::connection::{Connection, Shared, State, blank_params};
use super::counters::Counters;
use super::emit::emit;
use super::event::{Event, WorkKind};
use super::handshake::{Secret, bytes_of, is_acceptable};
use super::memory::Memory;
use super::receive::{Piece, packets};
use super::stream::{Receive, TxMessage};

/// The longest message, bytes (STRM-012).
const LONGEST: usize = 1 << 31;

/// The largest region, bytes.
const LARGEST_REGION: usize = u32::MAX as usize;

/// An endpoint of the protocol. See the [module](super) for how to drive it.
pub struct Endpoint {
    config: Config,
    random: ChaCha8Rng,
    secret: Secret,
    memory: Memory,
    service: Option<Service>,
    connections: BTreeMap<u32, Connection>,
    by_cid: BTreeMap<u32, u32>,
    next_handle: u32,
    stateless: VecDeque<(SocketAddr, Vec<u8>)>,
    events: VecDeque<Event>,
    counters: Counters,
}

impl Endpoint {
    /// An endpoint without connections.
    ///
    /// # Errors
    /// [`Misuse::Range`] when there is no source port.
    pub fn new(config: Config) -> Result<Self, Misuse> {
        if config.source_ports.is_empty() {
            return Err(Misuse::Range {
                what: "source_ports",
            });
        }
        let mut random = ChaCha8Rng::seed_from_u64(config.seed);
        let secret = Secret::new([random.next_u64(), random.next_u64()]);
        Ok(Self {
            memory: Memory::new(config.max_regions),
            config,
            random,
            secret,
            service: None,
            connections: BTreeMap::new(),
            by_cid: BTreeMap::new(),
            next_handle: 0,
            stateless: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
        })
    }

    // ---- the five verbs -----------------------------------------------------------------------------------------

    /// Takes one UDP payload that came from `from` with the mark `ecn`.
    pub fn handle_datagram(&mut self, now: u64, from: SocketAddr, ecn: Ecn, bytes: &[u8]) {
        self.counters.packets_received += 1;
        let pseudo = PseudoHeader::new(from.ip(), self.config.local);
        let packet = match parse(bytes, &pseudo) {
            Ok(packet) => packet,
            Err(WireError::Crc { .. }) => {
                self.counters.crc_errors += 1;
                return;
            }
            Err(_) => {
                self.counters.malformed += 1;
                return;
            }
        };
        match packet.body {
            Body::Open(open) => self.on_open(now, from, &packet.cbh, &open),
            Body::Confirm(confirm) => self.on_confirm(now, from, &packet.cbh, &confirm),
            Body::Unknown(_) => self.counters.unknown_opcode += 1,
            _ => self.on_connected(now, from, ecn, &packet),
        }
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: u64) {
        let mut shared = Shared {
            memory: &mut self.memory,
            counters: &mut self.counters,
            events: &mut self.events,
        };
        for connection in self.connections.values_mut() {
            connection.on_request_timers(now, &mut shared);
            connection.on_path_timers(now, &mut shared);
        }
        let by_cid = &mut self.by_cid;
        self.connections.retain(|_, connection| {
            let over = connection.is_forgotten(now);
            if over {
                by_cid.remove(&connection.mine.scid.value());
            }
            !over
        });
    }

    /// Fills `out` with the next datagram to send at `now`, if there is one.
    pub fn poll_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        if let Some((dst, bytes)) = self.stateless.pop_front() {
            out.clear();
            out.extend_from_slice(&bytes);
            self.counters.packets_sent += 1;
            return Some(Transmit {
                src_port: self.config.source_ports.start,
                dst,
                ecn: Ecn::NotEct,
            });
        }
        let mut shared = Shared {
            memory: &mut self.memory,
            counters: &mut self.counters,
            events: &mut self.events,
        };
        let transmit = self
            .connections
            .values_mut()
            .find_map(|connection| connection.poll_transmit(now, &mut shared, out))?;
        self.counters.packets_sent += 1;
        Some(transmit)
    }

    /// When [`Self::handle_timeout`] is next wanted, ns. It may lie in the past.
    pub fn poll_timeout(&self) -> Option<u64> {
        let deadlines = self
            .connections
            .values()
            .flat_map(|c| [c.deadline(), c.credit_deadline()]);
        deadlines.flatten().min()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    // ---- memory -------------------------------------------------------------------------------------------------

    /// Registers `len` bytes, all zero.
    ///
    /// # Errors
    /// [`Misuse::Limit`]; [`Misuse::Range`] above 4 GiB.
    pub fn register(&mut self, len: usize, access: Access) -> Result<Region, Misuse> {
        if len > LARGEST_REGION {
            return Err(Misuse::Range { what: "len" });
        }
        let random = self.random.next_u32();
        self.memory.register(len, access, random)
    }

    /// The bytes of a region.
    pub fn memory(&self, mr: u32) -> Option<&[u8]> {
        self.memory.bytes(mr)
    }

    /// The bytes of a region, to be changed by the application.
    pub fn memory_mut(&mut self, mr: u32) -> Option<&mut [u8]> {
        self.memory.bytes_mut(mr)
    }

    // ---- connections --------------------------------------------------------------------------------------------

    /// Offers a service to initiators.
    ///
    /// # Errors
    /// [`Misuse::Range`].
    pub fn listen(&mut self, service: Service) -> Result<(), Misuse> {
        service.check(&self.config.source_ports)?;
        self.service = Some(service);
        Ok(())
    }

    /// Begins a connection to `peer`; returns its handle. [`Event::Established`] or [`Event::Failed`] follows.
    ///
    /// # Errors
    /// [`Misuse::Range`], [`Misuse::Limit`].
    pub fn connect(&mut self, now: u64, peer: SocketAddr, service: Service) -> Result<u32, Misuse> {
        service.check(&self.config.source_ports)?;
        if self.connections.len() >= self.config.max_connections {
            return Err(Misuse::Limit {
                what: "connections",
                limit: self.config.max_connections,
            });
        }
        let mut scid = self.random.next_u32() & 0x00ff_ffff;
        while scid == 0 || self.by_cid.contains_key(&scid) {
            scid = self.random.next_u32() & 0x00ff_ffff;
        }
        let params = Params {
            paths: service.paths,
            scid: U24::new(scid),
            nonce: self.random.next_u64(),
            isn: Psn::new(
                service
                    .initial_psn
                    .unwrap_or_else(|| self.random.next_u32()),
            ),
            service_id: service.service_id,
            streams: service.streams,
            msg_window: service.msg_window,
            payload_size: service.payload_size,
            ack_delay: self.config.ack_delay_us,
            ..blank_params()
        };
        let handle = self.take_handle(scid);
        let addresses = (self.config.local, peer, self.config.source_ports.start);
        let connection = Connection::open(now, handle, addresses, params, self.random.next_u32());
        self.connections.insert(handle, connection);
        Ok(handle)
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn post_recv(
        &mut self,
        now: u64,
        conn: u32,
        stream: u16,
        wr_id: u64,
        buf: Buffer,
    ) -> Result<(), Misuse> {
        let holds = self.memory.holds(&buf);
        let connection = self.connection(conn)?;
        if connection.state.is_over() {
            return Err(Misuse::Closing);
        }
        let order = connection.order;
        let queue = connection
            .streams
            .get_mut(&stream)
            .filter(|s| s.is_known())
            .ok_or(Misuse::NoStream(stream))?;
        if !holds {
            return Err(Misuse::NoMemory);
        }
        let starved = !queue.has_receives();
        queue.post_receive(Receive {
            wr_id,
            order,
            buffer: buf,
            overrun: false,
        });
        connection.order += 1;
        if starved {
            connection.tell_credit(now, stream);
        }
        Ok(())
    }

    /// Posts a Send.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn post_send(
        &mut self,
        _now: u64,
        conn: u32,
        stream: u16,
        wr_id: u64,
        buf: Buffer,
    ) -> Result<(), Misuse> {
        self.post(conn, stream, (wr_id, WorkKind::Send), buf, (0, 0))
    }

    /// Posts a Write to `va` under `rkey`.
    ///
    /// # Errors
    /// [`Misuse`].
    #[expect(
        clippy::too_many_arguments,
        reason = "the call of the verbs, flat as there"
    )]
    pub fn post_write(
        &mut self,
        _now: u64,
        conn: u32,
        stream: u16,
        wr_id: u64,
        buf: Buffer,
        va: u64,
        rkey: u32,
    ) -> Result<(), Misuse> {
        if va.checked_add(buf.len as u64).is_none() {
            return Err(Misuse::Range { what: "va" });
        }
        self.post(conn, stream, (wr_id, WorkKind::Write), buf, (va, rkey))
    }

    fn post(
        &mut self,
        conn: u32,
        stream: u16,
        (wr_id, kind): (u64, WorkKind),
        buffer: Buffer,
        remote: (u64, u32),
    ) -> Result<(), Misuse> {
        let holds = self.memory.holds(&buffer);
        let connection = self.connection(conn)?;
        if !matches!(connection.state, State::Connected | State::Established)
            || connection.peer_closed
        {
            return Err(Misuse::Closing);
        }
        let (order, payload_size) = (connection.order, connection.agreed().payload_size);
        let queue = connection
            .streams
            .get_mut(&stream)
            .filter(|s| s.is_known())
            .ok_or(Misuse::NoStream(stream))?;
        if !holds {
            return Err(Misuse::NoMemory);
        }
        if buffer.len > LONGEST {
            return Err(Misuse::Range { what: "len" });
        }
        queue.post(TxMessage {
            wr_id,
            order,
            kind,
            buffer,
            remote,
            msn: Msn::new(0),
            rqsn: Rqsn::new(0),
            packets: packets(buffer.len as u32, payload_size),
            sent: 0,
            acked: 0,
            flushed: false,
        });
        connection.order += 1;
        Ok(())
    }

    /// Closes a connection once its work is done. [`Event::Closed`] follows.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn close(&mut self, now: u64, conn: u32) -> Result<(), Misuse> {
        self.connection(conn)?.close(now)
    }

    /// What the endpoint has counted, over all its connections and for packets without one, as long as `conn` is known.
    pub fn counters(&self, conn: u32) -> Option<Counters> {
        self.connections.get(&conn).map(|_| self.counters)
    }

    fn connection(&mut self, conn: u32) -> Result<&mut Connection, Misuse> {
        self.connections
            .get_mut(&conn)
            .ok_or(Misuse::NoConnection(conn))
    }

    fn take_handle(&mut self, scid: u32) -> u32 {
        let handle = self.next_handle;
        self.next_handle += 1;
        self.by_cid.insert(scid, handle);
        handle
    }

    // ---- packets without a connection ---------------------------------------------------------------------------

    fn service_of(&self, from: SocketAddr) -> SocketAddr {
        // Answers go to the port that both sides are configured with, never to the source port (CONV-003).
        SocketAddr::new(from.ip(), self.config.local.port())
    }

    fn answer(&mut self, from: SocketAddr, cbh: Cbh, body: Body<'_>) {
        let to = self.service_of(from);
        let bytes = emit(cbh, body, self.config.local, to);
        self.stateless.push_back((to, bytes));
    }

    fn reject(
        &mut self,
        now: u64,
        from: SocketAddr,
        cbh: &Cbh,
        params: &Params,
        reason: RejectReason,
    ) {
        let body = Reject {
            reason: reason.0,
            ver_min: VERSION,
            ver_max: VERSION,
            rsvd: 0,
            nonce: params.nonce,
            detail: 0,
        };
        let header = Cbh {
            psn: cbh.psn,
            timestamp: now as u32,
            ..Cbh::new(Opcode::REJECT, params.scid)
        };
        self.answer(from, header, Body::Reject(body));
    }

    fn on_open(&mut self, now: u64, from: SocketAddr, cbh: &Cbh, open: &Open) {
        let params = &open.params;
        // An endpoint that offers nothing is no acceptor, and says nothing.
        let Some(service) = self.service else { return };
        if !(params.ver_min..=params.ver_max).contains(&VERSION) {
            return self.reject(now, from, cbh, params, RejectReason::VERSION);
        }
        if params.service_id != service.service_id {
            return self.reject(now, from, cbh, params, RejectReason::NO_SERVICE);
        }
        if !is_acceptable(params) {
            return self.reject(now, from, cbh, params, RejectReason::BAD_PARAMETERS);
        }
        let accepted = self
            .secret
            .accept(from.ip(), params, &service, self.config.ack_delay_us);
        let taken = self
            .by_cid
            .get(&accepted.scid.value())
            .and_then(|handle| self.connections.get(handle));
        let other = taken.is_some_and(|connection| connection.theirs.nonce != params.nonce);
        if other || (taken.is_none() && self.connections.len() >= self.config.max_connections) {
            return self.reject(now, from, cbh, params, RejectReason::NO_RESOURCE);
        }
        let cookie = self.secret.cookie(
            now,
            from.ip(),
            &bytes_of(params, &open.planes),
            &bytes_of(&accepted, &Planes::NONE),
        );
        let header = Cbh {
            psn: cbh.psn,
            timestamp: now as u32,
            ..Cbh::new(Opcode::ACCEPT, params.scid)
        };
        self.answer(
            from,
            header,
            Body::Accept(Accept {
                params: accepted,
                planes: Planes::NONE,
                cookie,
            }),
        );
    }

    fn on_confirm(&mut self, now: u64, from: SocketAddr, cbh: &Cbh, confirm: &Confirm) {
        let (offered, accepted) = (&confirm.params, &confirm.accepted);
        if self.service.is_none() {
            return;
        }
        let known = self
            .by_cid
            .get(&accepted.scid.value())
            .and_then(|handle| self.connections.get(handle));
        let repeated = known.is_some_and(|c| {
            c.theirs == *offered && c.mine == *accepted && c.peer.ip() == from.ip()
        });
        let cookie = &confirm.cookie;
        let vouched = (
            bytes_of(offered, &confirm.planes),
            bytes_of(accepted, &confirm.accepted_planes),
        );
        let mut good = cbh.dcid == accepted.scid
            && self
                .secret
                .is_mine(from.ip(), &vouched.0, &vouched.1, cookie);
        // Repetitions are answered for as long as the connection is known.
        good &= repeated || Secret::is_fresh(now, cookie);
        if !good {
            return self.reject(now, from, cbh, offered, RejectReason::BAD_COOKIE);
        }
        if !repeated {
            if known.is_some() || self.connections.len() >= self.config.max_connections {
                return self.reject(now, from, cbh, offered, RejectReason::NO_RESOURCE);
            }
            let handle = self.take_handle(accepted.scid.value());
            let addresses = (
                self.config.local,
                self.service_of(from),
                self.config.source_ports.start,
            );
            let transaction = self.random.next_u32();
            let connection =
                Connection::accepted(now, handle, addresses, *accepted, *offered, transaction);
            self.connections.insert(handle, connection);
        }
        let header = Cbh {
            psn: cbh.psn,
            timestamp: now as u32,
            ..Cbh::new(Opcode::CONFIRM_ACK, offered.scid)
        };
        self.answer(
            from,
            header,
            Body::ConfirmAck(ConfirmAck {
                nonce: offered.nonce,
            }),
        );
    }

    // ---- packets of a connection --------------------------------------------------------------------------------

    fn on_connected(&mut self, now: u64, from: SocketAddr, ecn: Ecn, packet: &Packet<'_>) {
        let cbh = &packet.cbh;
        let handle = self.by_cid.get(&cbh.dcid.value());
        let connection = handle.and_then(|handle| self.connections.get_mut(handle));
        let Some(connection) = connection.filter(|connection| connection.peer.ip() == from.ip())
        else {
            self.counters.unknown_connection += 1;
            return;
        };
        let shared = &mut Shared {
            memory: &mut self.memory,
            counters: &mut self.counters,
            events: &mut self.events,
        };
        match packet.body {
            Body::Send(send) => {
                let piece = Piece {
                    msgh: send.msgh,
                    remote: None,
                    payload: send.payload,
                };
                connection.on_data(now, ecn, cbh, &piece, shared);
            }
            Body::Write(write) => {
                let remote = Some((write.tagh.va, write.tagh.rkey));
                let piece = Piece {
                    msgh: write.msgh,
                    remote,
                    payload: write.payload,
                };
                connection.on_data(now, ecn, cbh, &piece, shared);
            }
            Body::Ack(ack) => connection.on_ack(now, cbh, &ack.header, &Sack::EMPTY, shared),
            Body::AckSack(ack) => connection.on_ack(now, cbh, &ack.header, &ack.sack, shared),
            Body::Nak(nak) => connection.on_nak(now, cbh, &nak, shared),
            Body::Accept(accept) => connection.on_accept(now, cbh.psn, &accept, shared),
            Body::Reject(reject) => connection.on_reject(now, cbh.psn, &reject, shared),
            Body::ConfirmAck(ack) => connection.on_confirm_ack(now, cbh.psn, ack.nonce),
            Body::StreamOpen(open) => connection.on_stream_open(now, cbh.psn, &open, shared),
            Body::StreamOpenAck(ack) => connection.on_stream_open_ack(now, cbh.psn, &ack, shared),
            Body::RqCredit(credit) => connection.on_rq_credit(now, cbh.psn, &credit),
            Body::PathProbe(probe) => connection.on_probe(now, cbh, &probe),
            Body::PathProbeAck(ack) => connection.on_probe_ack(now, cbh, &ack, shared),
            Body::Close(close) => connection.on_close(now, cbh.psn, &close, shared),
            Body::CloseAck(_) => connection.on_close_ack(now, cbh.psn, shared),
            // What belongs to features that this endpoint does not offer.
            Body::SendImm(_)
            | Body::SendInv(_)
            | Body::WriteImm(_)
            | Body::ReadReq(_)
            | Body::CmpSwap(_)
            | Body::FetchAdd(_)
            | Body::Fill(_)
            | Body::ReadResp(_)
            | Body::AtomicResp(_)
            | Body::PathChange(_)
            | Body::PathRetire(_)
            | Body::PathRetired(_)
            | Body::RateHint(_)
            | Body::StreamReset(_)
            | Body::StreamResetAck(_) => shared.counters.unknown_opcode += 1,
            Body::Open(_) | Body::Confirm(_) | Body::Unknown(_) => {}
        }
    }
}
