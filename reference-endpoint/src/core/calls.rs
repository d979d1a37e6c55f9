//! What an application asks of an endpoint.

use std::net::SocketAddr;

use metaroce_wire::metaroce::{Features, Params, Planes, U24};
use metaroce_wire::serial::{Msn, Psn, Rqsn};
use rand_core::Rng;

use super::config::{
    Access, Buffer, Data, Misuse, Op, Region, Remote, Service, StreamConfig, Work,
};
use super::connection::{Connection, Settings, Shared, State, blank_params};
use super::counters::Counters;
use super::endpoint::Endpoint;
use super::event::{Completion, Event, Status, WorkKind};
use super::inbox::Receive;
use super::outbox::Message;
use super::receive::packets;
use super::stats::{ConnectionStats, PathStats, PlaneStats, StreamStats};
use super::transitions::StreamState;

/// The longest message, bytes (STRM-012).
const LONGEST: usize = 1 << 31;

/// The largest region, bytes.
const LARGEST_REGION: usize = u32::MAX as usize;

impl Endpoint {
    // ---- memory -------------------------------------------------------------------------------------------------

    /// Registers `len` bytes, all zero.
    ///
    /// # Errors
    /// [`Misuse::Limit`]; [`Misuse::Range`] above 4 GiB.
    pub fn register(&mut self, len: usize, access: Access) -> Result<Region, Misuse> {
        if len > LARGEST_REGION {
            return Err(Misuse::Range { what: "len" });
        }
        let random = &mut self.random;
        self.memory.register(len, access, || random.next_u32())
    }

    /// Forgets a region: from now on its key opens nothing, and work that needs it fails.
    ///
    /// # Errors
    /// [`Misuse::NoMemory`].
    pub fn deregister(&mut self, mr: u32) -> Result<(), Misuse> {
        self.memory.deregister(mr)
    }

    /// The bytes of a region.
    pub fn memory(&self, mr: u32) -> Option<&[u8]> {
        self.memory.bytes(mr)
    }

    /// The bytes of a region, to be changed by the application.
    pub fn memory_mut(&mut self, mr: u32) -> Option<&mut [u8]> {
        self.memory.bytes_mut(mr)
    }

    // ---- shared receive queues ----------------------------------------------------------------------------------

    /// Makes a shared receive queue; streams take from it that are opened with its number.
    pub fn create_srq(&mut self) -> u32 {
        self.srqs.create()
    }

    /// Posts a receive to a shared queue.
    ///
    /// # Errors
    /// [`Misuse::NoSrq`], [`Misuse::NoMemory`].
    pub fn post_srq_recv(
        &mut self,
        now: u64,
        srq: u32,
        wr_id: u64,
        buffer: Buffer,
    ) -> Result<(), Misuse> {
        if !self.srqs.has(srq) {
            return Err(Misuse::NoSrq(srq));
        }
        if !self.memory.holds(&buffer) {
            return Err(Misuse::NoMemory);
        }
        self.srqs.post(srq, receive(wr_id, 0, buffer));
        if let Some((conn, stream)) = self.srqs.next_hungry(srq) {
            self.with(conn, |connection, shared, _| {
                connection.tell_credit(now, stream, shared);
            });
        }
        Ok(())
    }

    /// Takes the latest receive with this number out of a shared queue; false when no such one is free. What streams were
    /// promised stands.
    ///
    /// # Errors
    /// [`Misuse::NoSrq`].
    pub fn withdraw_srq_recv(&mut self, srq: u32, wr_id: u64) -> Result<bool, Misuse> {
        if !self.srqs.has(srq) {
            return Err(Misuse::NoSrq(srq));
        }
        Ok(self.srqs.withdraw(srq, wr_id).is_some())
    }

    /// Removes a shared receive queue, with the receives in it.
    ///
    /// # Errors
    /// [`Misuse::NoSrq`]; [`Misuse::NotPossible`] while a stream takes from it.
    pub fn destroy_srq(&mut self, srq: u32) -> Result<(), Misuse> {
        match self.srqs.remove(srq) {
            Some(true) => Ok(()),
            Some(false) => Err(Misuse::NotPossible("a stream takes from the queue")),
            None => Err(Misuse::NoSrq(srq)),
        }
    }

    // ---- connections --------------------------------------------------------------------------------------------

    /// Offers a service to initiators.
    ///
    /// # Errors
    /// [`Misuse::Range`], [`Misuse::NoSrq`].
    pub fn listen(&mut self, service: Service) -> Result<(), Misuse> {
        self.check_service(&service)?;
        self.service = Some(service);
        Ok(())
    }

    /// Offers nothing any more. The connections that there are go on.
    pub fn stop_listening(&mut self) {
        self.service = None;
    }

    /// Sets what the streams get that the peer opens from now on.
    ///
    /// # Errors
    /// [`Misuse::NoConnection`], [`Misuse::NoSrq`].
    pub fn set_stream_config(&mut self, conn: u32, config: StreamConfig) -> Result<(), Misuse> {
        if let Some(srq) = config.srq.filter(|srq| !self.srqs.has(*srq)) {
            return Err(Misuse::NoSrq(srq));
        }
        self.on(conn, |connection, _| {
            connection.service.stream = config;
            Ok(())
        })
    }

    fn check_service(&self, service: &Service) -> Result<(), Misuse> {
        service.check(&self.config)?;
        match service.stream.srq {
            Some(srq) if !self.srqs.has(srq) => Err(Misuse::NoSrq(srq)),
            _ => Ok(()),
        }
    }

    /// Begins a connection to `peer`; returns its handle. [`Event::Established`] or [`Event::Failed`] follows.
    ///
    /// # Errors
    /// [`Misuse::Range`], [`Misuse::Limit`], [`Misuse::NoSrq`].
    pub fn connect(&mut self, now: u64, peer: SocketAddr, service: Service) -> Result<u32, Misuse> {
        self.check_service(&service)?;
        if self.is_full() {
            return Err(Misuse::Limit {
                what: "connections",
                limit: self.config.max_connections,
            });
        }
        let mut scid = self.random.next_u32() & 0x00ff_ffff;
        while scid == 0 || self.by_cid.contains_key(&scid) {
            scid = self.random.next_u32() & 0x00ff_ffff;
        }
        let config = &self.config;
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
            ack_delay: config.ack_delay_us,
            hint_interval: config.declared_hint_interval(),
            hint_support: u8::from(config.capacity_mbps.is_some()),
            extra_planes: service.extra_planes,
            read_depth: service.read_depth,
            atomic_depth: service.atomic_depth,
            features: service.features,
            ..blank_params()
        };
        let own = Planes::bytes_of(&config.planes[..usize::from(service.extra_planes)]);
        let handle = self.take_handle(scid);
        let offset = (handle as u16).wrapping_mul(service.paths);
        let settings = Settings::new(&self.config, offset);
        let mut connection = Connection::blank(
            now,
            handle,
            (settings, peer),
            &service,
            (params, blank_params()),
            self.random.next_u32(),
        );
        connection.open(now, &Planes(&own));
        self.add(connection);
        Ok(handle)
    }

    fn on<R>(
        &mut self,
        conn: u32,
        act: impl FnOnce(&mut Connection, &mut Shared<'_>) -> Result<R, Misuse>,
    ) -> Result<R, Misuse> {
        self.with(conn, |connection, shared, _| act(connection, shared))
            .unwrap_or(Err(Misuse::NoConnection(conn)))
    }

    /// Closes a connection once its work is done. [`Event::Closed`] follows.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn close(&mut self, now: u64, conn: u32) -> Result<(), Misuse> {
        self.on(conn, |connection, _| connection.close(now))
    }

    /// Ends a connection at once: all of its work is flushed, and the peer is told that it is over by an error.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn abort(&mut self, now: u64, conn: u32) -> Result<(), Misuse> {
        self.on(conn, |connection, shared| connection.abort(now, shared))
    }

    // ---- streams ------------------------------------------------------------------------------------------------

    /// Opens a further stream; returns its number. [`Event::StreamOpened`] or [`Event::StreamEnded`] follows. Work can be
    /// posted to it at once.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn open_stream(
        &mut self,
        now: u64,
        conn: u32,
        config: StreamConfig,
    ) -> Result<u16, Misuse> {
        if let Some(srq) = config.srq.filter(|srq| !self.srqs.has(*srq)) {
            return Err(Misuse::NoSrq(srq));
        }
        self.on(conn, |connection, shared| {
            connection.open_stream(now, config, shared)
        })
    }

    /// Ends a stream and flushes what is posted to it; where RESET has not been agreed, the connection with it.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn reset_stream(&mut self, now: u64, conn: u32, stream: u16) -> Result<(), Misuse> {
        self.on(conn, |connection, shared| {
            connection.end_stream(now, stream, shared)
        })
    }

    /// Posts a receive. On a stream that has ended it is flushed at once.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn post_recv(
        &mut self,
        now: u64,
        conn: u32,
        stream: u16,
        wr_id: u64,
        buffer: Buffer,
    ) -> Result<(), Misuse> {
        let holds = self.memory.holds(&buffer);
        self.on(conn, |connection, shared| {
            connection.post_recv(now, stream, (wr_id, buffer, holds), shared)
        })
    }

    /// Takes the latest receive with this number back, unless a message has begun to fill it; false when there is none.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn withdraw_recv(&mut self, conn: u32, stream: u16, wr_id: u64) -> Result<bool, Misuse> {
        self.on(conn, |connection, _| {
            let stream = connection.stream(stream).ok_or(Misuse::NoStream(stream))?;
            Ok(stream.rx.withdraw(wr_id).is_some())
        })
    }

    /// Posts work. On a stream that has ended it is flushed at once. What cannot be sent as it is, an operation that was
    /// not agreed or an atomic one on an address that is no multiple of 8, completes in its turn with an error, and its
    /// stream ends.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn post(&mut self, now: u64, conn: u32, stream: u16, work: Work) -> Result<(), Misuse> {
        let holds = match &work.data {
            Data::Buffer(buffer) => self.memory.holds(buffer),
            Data::Inline(_) => true,
        };
        if !holds {
            return Err(Misuse::NoMemory);
        }
        self.on(conn, |connection, shared| {
            connection.post(now, stream, work, None, shared)
        })
    }

    /// Posts work that fails in its turn with `status`, and its stream with it: what an application does when it has found
    /// out by itself that the work cannot be done, such as for a buffer that it has no right to.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn post_failed(
        &mut self,
        now: u64,
        conn: u32,
        stream: u16,
        work: Work,
        status: Status,
    ) -> Result<(), Misuse> {
        self.on(conn, |connection, shared| {
            connection.post(now, stream, work, Some(status), shared)
        })
    }

    /// Posts a signalled Send.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn post_send(
        &mut self,
        now: u64,
        conn: u32,
        stream: u16,
        wr_id: u64,
        buf: Buffer,
    ) -> Result<(), Misuse> {
        let work = Work::new(wr_id, Op::Send, Data::Buffer(buf));
        self.post(now, conn, stream, work)
    }

    /// Posts a signalled Write.
    ///
    /// # Errors
    /// [`Misuse`].
    #[expect(
        clippy::too_many_arguments,
        reason = "the call of the verbs, flat as there"
    )]
    pub fn post_write(
        &mut self,
        now: u64,
        conn: u32,
        stream: u16,
        wr_id: u64,
        buf: Buffer,
        va: u64,
        rkey: u32,
    ) -> Result<(), Misuse> {
        let op = Op::Write(Remote { va, rkey });
        let work = Work::new(wr_id, op, Data::Buffer(buf));
        self.post(now, conn, stream, work)
    }

    // ---- paths and planes ---------------------------------------------------------------------------------------

    /// Sends a path from another source port, or through another plane. PSNs, windows and epoch go on.
    ///
    /// # Errors
    /// [`Misuse`]; [`Misuse::Range`] for a port of another path.
    pub fn move_path(
        &mut self,
        now: u64,
        conn: u32,
        path: u16,
        port: Option<u16>,
        plane: Option<u8>,
    ) -> Result<(), Misuse> {
        let ports = self.config.source_ports.clone();
        self.on(conn, |connection, _| {
            let tx = connection
                .tx
                .get(usize::from(path))
                .ok_or(Misuse::NoPath(path))?;
            let (port, plane) = (port.unwrap_or(tx.port), plane.unwrap_or(tx.plane));
            if usize::from(plane) >= connection.planes.len() {
                return Err(Misuse::NoPlane(plane));
            }
            let mut others = (0u16..)
                .zip(&connection.tx)
                .filter(|(other, _)| *other != path);
            if !ports.contains(&port) || others.any(|(_, other)| other.port == port) {
                return Err(Misuse::Range { what: "port" });
            }
            if !tx.state.is_alive() {
                return Err(Misuse::NotPossible("the path carries no data"));
            }
            connection.change_route(now, path, port, plane);
            Ok(())
        })
    }

    /// Gives up a path: what the peer has not got of it goes elsewhere. It is opened again when a probe is answered.
    ///
    /// # Errors
    /// [`Misuse`]; [`Misuse::NotPossible`] when no other path is alive or RETIRE was not agreed.
    pub fn retire_path(&mut self, now: u64, conn: u32, path: u16) -> Result<(), Misuse> {
        self.on(conn, |connection, shared| {
            connection.retire_path(now, path, shared)
        })
    }

    /// Asks a path that was given up as soon as the first pause allows whether it works again, however often it has been
    /// asked in vain.
    ///
    /// # Errors
    /// [`Misuse::NoConnection`], [`Misuse::NoPath`]; [`Misuse::NotPossible`] when it does not rest.
    pub fn reopen_path(&mut self, conn: u32, path: u16) -> Result<(), Misuse> {
        self.on(conn, |connection, _| connection.reopen_path(path))
    }

    /// Says that a plane works, or that it does not: its paths leave it at once, or come back.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn set_plane(&mut self, now: u64, conn: u32, plane: u8, up: bool) -> Result<(), Misuse> {
        self.on(conn, |connection, _| connection.set_plane(now, plane, up))
    }

    /// Sets the inbound capacity, Mb/s, of which the senders are told their shares from the next renewal on: it changes
    /// when a plane fails or works again.
    ///
    /// # Errors
    /// [`Misuse::NotPossible`] when the endpoint was set up without hints.
    pub fn set_capacity(&mut self, mbps: u32) -> Result<(), Misuse> {
        if self.config.capacity_mbps.is_none() {
            return Err(Misuse::NotPossible("the endpoint gives no hints"));
        }
        self.shares.set_capacity(mbps);
        Ok(())
    }

    // ---- what is there ------------------------------------------------------------------------------------------

    /// What the endpoint has counted, over all its connections and for packets without one, as long as `conn` is known.
    pub fn counters(&self, conn: u32) -> Option<Counters> {
        self.connection(conn).map(|_| self.counters)
    }

    /// A connection as it is now.
    pub fn connection_stats(&self, conn: u32) -> Option<ConnectionStats> {
        self.connection(conn).map(Connection::stats)
    }

    /// A path of the sending direction as it is now.
    pub fn path_stats(&self, conn: u32, path: u16) -> Option<PathStats> {
        self.connection(conn)?.path_stats(path)
    }

    /// A plane as it is now.
    pub fn plane_stats(&self, conn: u32, plane: u8) -> Option<PlaneStats> {
        self.connection(conn)?.plane_stats(plane)
    }

    /// A stream as it is now.
    pub fn stream_stats(&self, conn: u32, stream: u16) -> Option<StreamStats> {
        self.connection(conn)?.stream_stats(stream)
    }
}

fn receive(wr_id: u64, order: u64, buffer: Buffer) -> Receive {
    Receive {
        wr_id,
        order,
        buffer,
        overrun: false,
        begun: false,
    }
}

impl Connection {
    /// Reports work as flushed that was posted to a stream that has ended (VERB-007).
    fn flush_at_once(&self, stream: u16, (wr_id, kind): (u64, WorkKind), shared: &mut Shared<'_>) {
        shared.events.push_back(Event::Completion(Completion {
            conn: self.handle,
            stream,
            wr_id,
            kind,
            status: Status::WrFlushErr,
            byte_len: 0,
            imm: None,
            invalidated: None,
            solicited: false,
        }));
    }

    fn post_recv(
        &mut self,
        now: u64,
        id: u16,
        (wr_id, buffer, holds): (u64, Buffer, bool),
        shared: &mut Shared<'_>,
    ) -> Result<(), Misuse> {
        let order = self.order;
        let stream = self.streams.get_mut(id).ok_or(Misuse::NoStream(id))?;
        if !holds {
            return Err(Misuse::NoMemory);
        }
        if stream.state.is_over() {
            self.flush_at_once(id, (wr_id, WorkKind::Recv), shared);
            return Ok(());
        }
        if stream.config.srq.is_some() {
            return Err(Misuse::NotPossible("the stream takes from a shared queue"));
        }
        let starved = stream.rx.is_used_up();
        stream.rx.post(receive(wr_id, order, buffer));
        let news = stream.rx.has_news(false);
        self.order += 1;
        if starved && news {
            self.tell_credit(now, id, shared);
        }
        Ok(())
    }

    fn post(
        &mut self,
        now: u64,
        id: u16,
        work: Work,
        fails: Option<Status>,
        shared: &mut Shared<'_>,
    ) -> Result<(), Misuse> {
        let order = self.order;
        let size = self.agreed().payload_size;
        let (closing, peer_closed) = (self.state == State::Closing, self.peer_closed);
        let fails = fails.or_else(|| self.cannot_be_sent(&work));
        let stream = self.streams.get_mut(id).ok_or(Misuse::NoStream(id))?;
        let kind = work.op.kind();
        let never = work.op.is_answered() && stream.config.max_rd_atomic == Some(0);
        let fails = fails.or(never.then_some(Status::LocQpOpErr));
        if stream.state.is_over() {
            self.flush_at_once(id, (work.wr_id, kind), shared);
            return Ok(());
        }
        if closing && !peer_closed {
            return Err(Misuse::Closing);
        }
        // It is flushed in its turn: work before it may have been begun, and ends first (STRM-028).
        let fails = if peer_closed {
            Some(Status::WrFlushErr)
        } else {
            fails
        };
        if stream.state == StreamState::None {
            return Err(Misuse::NoStream(id));
        }
        let len = work.data.len();
        if len > LONGEST {
            return Err(Misuse::Range { what: "len" });
        }
        if wraps(&work) {
            return Err(Misuse::Range { what: "va" });
        }
        let answered = work.op.is_answered();
        if answered && matches!(work.data, Data::Inline(_)) {
            return Err(Misuse::Range { what: "data" });
        }
        let len = len as u32;
        let pieces = packets(len, size);
        let answer_packets = match kind {
            WorkKind::Read => pieces,
            WorkKind::CmpSwap | WorkKind::FetchAdd => 1,
            _ => 0,
        };
        stream.tx.post(Message {
            work,
            order,
            len,
            msn: Msn::new(0),
            rqsn: Rqsn::new(0),
            packets: if answered { 1 } else { pieces },
            sent: 0,
            acked: 0,
            answer_packets,
            answered: 0,
            not_ready: None,
            origin: None,
            overlong: false,
            failed_here: None,
            failed: fails,
        });
        self.order += 1;
        self.activate(id);
        // What keeps data back otherwise does not put off the question for credit (STRM-030).
        if self.lacks_credit(id) {
            self.starve(now, id);
        }
        if fails.is_some() {
            self.report_ended(now, id, shared);
        }
        Ok(())
    }

    /// Why work is given back without being sent (OPS-001, OPS-032).
    fn cannot_be_sent(&self, work: &Work) -> Option<Status> {
        if self.theirs.scid.value() == 0 {
            return None;
        }
        let len = work.data.len();
        let sound = match &work.op {
            Op::Send | Op::Write(_) => true,
            Op::SendImm(_) | Op::WriteImm(..) => self.has(Features::IMM),
            Op::SendInv(_) => self.has(Features::INV),
            Op::Read(_) => self.theirs.read_depth > 0,
            Op::CmpSwap { at, .. } | Op::FetchAdd { at, .. } => {
                self.theirs.atomic_depth > 0 && at.va.is_multiple_of(8) && len == 8
            }
        };
        (!sound).then_some(Status::LocQpOpErr)
    }
}

/// Whether the memory that work names reaches past the end of all addresses.
fn wraps(work: &Work) -> bool {
    let remote = match work.op {
        Op::Write(remote) | Op::WriteImm(remote, _) | Op::Read(remote) => remote,
        Op::CmpSwap { at, .. } | Op::FetchAdd { at, .. } => at,
        Op::Send | Op::SendImm(_) | Op::SendInv(_) => return false,
    };
    remote.va.checked_add(work.data.len() as u64).is_none()
}
