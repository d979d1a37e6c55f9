//! A session: lines to calls of an endpoint, and its events to lines. No I/O, no clock.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::engine::{Engine, Work};
use super::hex;
use super::messages::{
    self, Capabilities, Code, Failure, LONGEST_PIECE, LONGEST_WAIT_MS, Open, Piece, Post,
    PostWrite, Register, Report, Request, Role, WriteMemory,
};
use super::{NAME, PROFILE, PROTOCOL};
use crate::core::{
    Access, Buffer, Config, Counters, Ecn, Endpoint, Event, Features, Misuse, Op, Remote, Service,
    Transmit, WorkKind,
};
use crate::mutants::Mutant;

/// Registered bytes of a session, at most.
const MOST_MEMORY: u64 = 1 << 30;
/// Regions of a session, at most.
const MOST_REGIONS: usize = 65_536;
/// Connections of a session: one, until it is reset.
const MOST_CONNECTIONS: usize = 1;
const MOST_PATHS: u16 = 256;
const MOST_STREAMS: u16 = 16_384;
/// Events in one answer, at most; the others wait for the next `poll`.
const MOST_EVENTS: usize = 4096;

/// A session of the adapter protocol with one endpoint in it.
///
/// It is driven like the [core](crate::core): after any call, poll [`Self::poll_transmit`] until there is nothing, then
/// [`Self::poll_timeout`] once. All times are nanoseconds on one clock that never goes backwards.
pub struct Session {
    seed: u64,
    mutant: Option<Mutant>,
    open: Option<OpenSession>,
    events: VecDeque<Report>,
    last_id: Option<u64>,
}

struct OpenSession {
    local: SocketAddr,
    engine: Box<dyn Engine>,
    memory: u64,
}

impl Session {
    /// A session in which nothing is open. `seed` and the seed that `open` names make up the endpoint's. With a mutant,
    /// the endpoint breaks one clause on purpose.
    pub fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        Self {
            seed,
            mutant,
            open: None,
            events: VecDeque::new(),
            last_id: None,
        }
    }

    /// Answers one line. It never waits: `poll` is answered with what is there. Any text draws exactly one answer,
    /// without a line end; what is no request draws an error with a [`Code`].
    pub fn handle_line(&mut self, now: u64, line: &str) -> String {
        let (id, request) = messages::read(line);
        self.last_id = id;
        let answer = request.and_then(|request| self.answer(now, request));
        self.collect(now);
        self.line(answer)
    }

    /// How long the request in `line` wants to wait for an event, ms: only a valid `poll` in an open session waits.
    pub fn wait_of(&self, line: &str) -> Option<u64> {
        // Most lines need not be read twice.
        if self.open.is_none() || !line.contains("poll") {
            return None;
        }
        match messages::read(line).1 {
            Ok(Request::Poll(poll)) if poll.timeout_ms <= LONGEST_WAIT_MS => Some(poll.timeout_ms),
            _ => None,
        }
    }

    /// Takes back an `open` that has just been answered, because its sockets cannot be had; returns the answer that
    /// takes the place of the first one.
    pub fn refuse_open(&mut self, message: &str) -> String {
        self.reset();
        self.line(Err(Failure::new(Code::Io, message)))
    }

    /// The answer to a line that could not even be read: too long, or not UTF-8.
    pub fn refuse_line(&mut self, message: &str) -> String {
        self.last_id = None;
        self.line(Err(Failure::new(Code::BadLine, message)))
    }

    /// Own address and service port, once open.
    pub fn local(&self) -> Option<SocketAddr> {
        self.open.as_ref().map(|open| open.local)
    }

    /// Whether `poll` would report something.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Takes one UDP payload that came from `from` with the mark `ecn`.
    pub fn handle_datagram(&mut self, now: u64, from: SocketAddr, ecn: Ecn, bytes: &[u8]) {
        if let Some(open) = &mut self.open {
            open.engine.handle_datagram(now, from, ecn, bytes);
            self.collect(now);
        }
    }

    /// As [`Self::handle_datagram`], for a datagram that came to the own address `to`.
    pub fn handle_datagram_at(
        &mut self,
        now: u64,
        to: IpAddr,
        from: SocketAddr,
        ecn: Ecn,
        bytes: &[u8],
    ) {
        if let Some(open) = &mut self.open {
            open.engine.handle_datagram_at(now, to, from, ecn, bytes);
            self.collect(now);
        }
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: u64) {
        if let Some(open) = &mut self.open {
            open.engine.handle_timeout(now);
            self.collect(now);
        }
    }

    /// When [`Self::handle_timeout`] is next wanted, ns. It may lie in the past.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.open.as_ref()?.engine.poll_timeout()
    }

    /// Fills `out` with the next datagram to send at `now`, if there is one.
    pub fn poll_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        let transmit = self.open.as_mut()?.engine.poll_transmit(now, out);
        self.collect(now);
        transmit
    }

    /// As [`Self::poll_transmit`], but the datagram is appended to `out`.
    pub fn append_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        let transmit = self.open.as_mut()?.engine.append_transmit(now, out);
        self.collect(now);
        transmit
    }

    fn line(&self, answer: Result<Value, Failure>) -> String {
        let id = self.last_id;
        match answer {
            Ok(ok) => json!({"id": id, "ok": ok}),
            Err(error) => json!({"id": id, "error": error}),
        }
        .to_string()
    }

    fn reset(&mut self) {
        self.open = None;
        self.events.clear();
    }

    fn collect(&mut self, now: u64) {
        let Some(open) = &mut self.open else { return };
        while let Some(event) = open.engine.poll_event() {
            self.events.extend(report(event, now));
        }
    }

    fn answer(&mut self, now: u64, request: Request) -> Result<Value, Failure> {
        match request {
            Request::Hello(hello) => {
                if hello.protocol != PROTOCOL {
                    let message = format!("this adapter speaks version {PROTOCOL} of the protocol");
                    return Err(Failure::new(Code::BadProtocol, message));
                }
                Ok(json!({
                    "protocol": PROTOCOL,
                    "name": NAME,
                    "version": env!("CARGO_PKG_VERSION"),
                    "profile": PROFILE,
                }))
            }
            Request::Capabilities => value(&capabilities()),
            Request::Open(open) => self.open(now, &open),
            Request::Reset => {
                self.reset();
                Ok(json!({}))
            }
            Request::Poll(poll) => {
                self.engine()?;
                if poll.timeout_ms > LONGEST_WAIT_MS {
                    let message = format!("timeout_ms is at most {LONGEST_WAIT_MS}");
                    return Err(Failure::new(Code::BadRequest, message));
                }
                self.collect(now);
                let most = self.events.len().min(MOST_EVENTS);
                let events: Vec<Report> = self.events.drain(..most).collect();
                Ok(json!({"events": value(&events)?}))
            }
            Request::Register(register) => self.register(&register),
            Request::WriteMemory(write) => self.write_memory(&write),
            Request::ReadMemory(piece) => {
                if piece.len > LONGEST_PIECE as u64 {
                    let message = format!("one answer holds at most {LONGEST_PIECE} bytes");
                    return Err(Failure::new(Code::Limit, message));
                }
                Ok(json!({"hex": hex::encode(self.bytes(&piece)?)}))
            }
            Request::Digest(piece) => {
                let digest = Sha256::digest(self.bytes(&piece)?);
                Ok(json!({"sha256": hex::encode(&digest)}))
            }
            Request::PostRecv(post) => self.post(now, &post, WorkKind::Recv, None),
            Request::PostSend(post) => self.post(now, &post, WorkKind::Send, Some(Op::Send)),
            Request::PostWrite(post) => self.post_write(now, post),
            Request::Counters(of) => {
                let counters = self.engine()?.counters(of.conn);
                let counters = counters.ok_or_else(|| failure(Misuse::NoConnection(of.conn)))?;
                Ok(json!({"counters": value(&counters)?}))
            }
            Request::Close(of) => {
                self.engine()?.close(now, of.conn).map_err(failure)?;
                Ok(json!({}))
            }
        }
    }

    fn engine(&mut self) -> Result<&mut dyn Engine, Failure> {
        match &mut self.open {
            Some(open) => Ok(open.engine.as_mut()),
            None => Err(Failure::new(Code::NotOpen, "the session is not open")),
        }
    }

    fn open(&mut self, now: u64, open: &Open) -> Result<Value, Failure> {
        if self.open.is_some() {
            let message = "the session is open; reset it first";
            return Err(Failure::new(Code::AlreadyOpen, message));
        }
        let config = config(self.seed, open)?;
        let mut engine: Box<dyn Engine> = match &self.mutant {
            Some(mutant) => mutant.engine(config),
            None => Endpoint::new(config).map(|endpoint| Box::new(endpoint) as Box<dyn Engine>),
        }
        .map_err(failure)?;
        let service = Service {
            service_id: open.service_id,
            paths: open.paths,
            streams: open.streams,
            payload_size: open.payload_size,
            msg_window: open.msg_window,
            initial_psn: open.initial_psn,
            // All of them at once: whoever drives a session posts to each when it is established.
            first_streams: open.streams,
            features: Features(0),
            ..Service::default()
        };
        let conn = match open.role {
            Role::Initiator => engine.connect(now, open.peer, service),
            // The core numbers connections from 0, and the session takes one only.
            Role::Acceptor => engine.listen(service).map(|()| 0),
        }
        .map_err(failure)?;
        self.open = Some(OpenSession {
            local: open.local,
            engine,
            memory: 0,
        });
        Ok(json!({"conn": conn}))
    }

    fn register(&mut self, register: &Register) -> Result<Value, Failure> {
        self.engine()?;
        let Some(open) = &mut self.open else {
            return Err(Failure::new(Code::NotOpen, "the session is not open"));
        };
        let too_much = || {
            let message = format!("a session registers at most {MOST_MEMORY} bytes");
            Failure::new(Code::Limit, message)
        };
        let memory = open.memory.saturating_add(register.len);
        if memory > MOST_MEMORY {
            return Err(too_much());
        }
        let len = usize::try_from(register.len).map_err(|_| too_much())?;
        let access = Access {
            remote_write: register.remote_write,
            ..Access::default()
        };
        let region = open.engine.register(len, access).map_err(failure)?;
        open.memory = memory;
        if register.fill != 0
            && let Some(bytes) = open.engine.memory_mut(region.mr)
        {
            bytes.fill(register.fill);
        }
        Ok(json!({"mr": region.mr, "va": format!("{:#x}", region.va), "rkey": region.rkey}))
    }

    fn write_memory(&mut self, write: &WriteMemory) -> Result<Value, Failure> {
        let bytes = hex::decode(&write.hex)
            .ok_or_else(|| Failure::new(Code::BadRequest, "hex is not pairs of hex digits"))?;
        let region = self
            .engine()?
            .memory_mut(write.mr)
            .ok_or_else(|| no_region(write.mr))?;
        let len = region.len();
        range(write.offset, bytes.len() as u64)
            .and_then(|range| region.get_mut(range))
            .ok_or_else(|| out_of_bounds(write.mr, len))?
            .copy_from_slice(&bytes);
        Ok(json!({}))
    }

    fn bytes(&mut self, piece: &Piece) -> Result<&[u8], Failure> {
        let region = self
            .engine()?
            .memory(piece.mr)
            .ok_or_else(|| no_region(piece.mr))?;
        range(piece.offset, piece.len)
            .and_then(|range| region.get(range))
            .ok_or_else(|| out_of_bounds(piece.mr, region.len()))
    }

    fn post_write(&mut self, now: u64, write: PostWrite) -> Result<Value, Failure> {
        let va = hex::number(&write.va).ok_or_else(|| {
            Failure::new(Code::BadRequest, "va is not 0x and at most 16 hex digits")
        })?;
        let remote = Remote {
            va,
            rkey: write.rkey,
        };
        let post = Post {
            conn: write.conn,
            stream: write.stream,
            wr_id: write.wr_id,
            mr: write.mr,
            offset: write.offset,
            len: write.len,
        };
        self.post(now, &post, WorkKind::Write, Some(Op::Write(remote)))
    }

    fn post(
        &mut self,
        now: u64,
        post: &Post,
        kind: WorkKind,
        op: Option<Op>,
    ) -> Result<Value, Failure> {
        let piece = Piece {
            mr: post.mr,
            offset: post.offset,
            len: post.len,
        };
        self.bytes(&piece)?;
        let place = range(post.offset, post.len).ok_or_else(|| out_of_bounds(post.mr, 0))?;
        let work = Work {
            conn: post.conn,
            stream: post.stream,
            wr_id: post.wr_id,
            buffer: Buffer {
                mr: post.mr,
                offset: place.start,
                len: place.len(),
            },
            op,
            kind,
        };
        self.engine()?.post(now, &work).map_err(failure)?;
        Ok(json!({}))
    }
}

fn config(seed: u64, open: &Open) -> Result<Config, Failure> {
    let bad = |message: &str| Err(Failure::new(Code::BadRequest, message));
    if open.local.is_ipv4() != open.peer.is_ipv4() {
        return bad("local and peer are not of one address family");
    }
    if open.local.ip().is_unspecified() || open.local.port() == 0 || open.peer.port() == 0 {
        return bad("local and peer name an address and a port each");
    }
    if open.role == Role::Acceptor && open.local.port() != open.peer.port() {
        return bad("an acceptor answers to its own service port, so the peer must use the same");
    }
    let Some(end) = open.source_port_base.checked_add(open.paths) else {
        return bad("the source ports from source_port_base on do not suffice for the paths");
    };
    if open.source_port_base == 0 {
        return bad("source_port_base is 0");
    }
    Ok(Config {
        // Rotated, so that equal seeds do not cancel out.
        seed: seed.rotate_left(32) ^ open.seed,
        source_ports: open.source_port_base..end,
        ack_delay_us: open.ack_delay_us,
        max_connections: MOST_CONNECTIONS,
        max_regions: MOST_REGIONS,
        ..Config::new(open.local)
    })
}

fn range(offset: u64, len: u64) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(len).ok()?)?;
    Some(start..end)
}

fn no_region(mr: u32) -> Failure {
    Failure::new(Code::NoSuchRegion, format_args!("there is no region {mr}"))
}

fn out_of_bounds(mr: u32, len: usize) -> Failure {
    let message = format!("the bytes do not lie inside region {mr} of {len} bytes");
    Failure::new(Code::OutOfBounds, message)
}

fn failure(misuse: Misuse) -> Failure {
    let code = match &misuse {
        Misuse::NoConnection(_) => Code::NoSuchConnection,
        Misuse::NoStream(_) => Code::NoSuchStream,
        Misuse::NoMemory => Code::OutOfBounds,
        Misuse::Limit { .. } => Code::Limit,
        Misuse::Range { .. } => Code::BadRequest,
        _ => Code::Misuse,
    };
    Failure::new(code, misuse)
}

fn value<T: Serialize>(of: &T) -> Result<Value, Failure> {
    serde_json::to_value(of).map_err(|error| Failure::new(Code::Misuse, error))
}

fn capabilities() -> Capabilities {
    let counters = match serde_json::to_value(Counters::default()) {
        Ok(Value::Object(counters)) => counters.into_iter().map(|(name, _)| name).collect(),
        _ => Vec::new(),
    };
    Capabilities {
        roles: vec![Role::Initiator, Role::Acceptor],
        operations: vec!["send", "write"],
        max_paths: MOST_PATHS,
        max_streams: MOST_STREAMS,
        payload_sizes: vec![256, 512, 1024, 2048, 4096, 8192],
        initial_psn: true,
        counters,
    }
}

/// What is shown of an event; nothing of what a harness has not asked for.
fn report(event: Event, t_ns: u64) -> Option<Report> {
    Some(match event {
        Event::Established {
            conn,
            paths,
            streams,
        } => Report::Established {
            conn,
            paths,
            streams,
            t_ns,
        },
        Event::Completion(done) => Report::Completion {
            conn: done.conn,
            stream: done.stream,
            wr_id: done.wr_id,
            kind: match done.kind {
                WorkKind::Send => "send",
                WorkKind::Write => "write",
                WorkKind::Read => "read",
                WorkKind::CmpSwap => "cmp_swap",
                WorkKind::FetchAdd => "fetch_add",
                WorkKind::Recv => "recv",
                WorkKind::RecvWrite => "recv_write",
            },
            status: done.status.to_string(),
            byte_len: done.byte_len,
            t_ns,
        },
        Event::Closed { conn, reason } => Report::Closed { conn, reason, t_ns },
        Event::Failed {
            conn,
            status,
            message,
        } => Report::Failed {
            conn,
            status: status.to_string(),
            message,
            t_ns,
        },
        Event::StreamOpened { .. } | Event::StreamEnded { .. } | Event::PathAlive { .. } => {
            return None;
        }
    })
}
