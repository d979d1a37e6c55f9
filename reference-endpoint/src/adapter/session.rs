//! A session: lines to calls of an endpoint, and its events to lines. No I/O, no clock.

mod work;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::answers::{self, Capabilities, Code, Failure, Report};
use super::engine::Engine;
use super::messages::{
    self, LONGEST_PIECE, LONGEST_WAIT_MS, Open, Piece, Register, Request, Role, WriteMemory,
};
use super::opening::{self, Feature};
use super::{NAME, PROFILE, PROTOCOL, hex};
use crate::core::{Access, Counters, Ecn, Endpoint, Misuse, StreamConfig, Transmit};
use crate::mutants::Mutant;

/// Registered bytes of a session, at most.
const MOST_MEMORY: u64 = 1 << 30;
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
    /// Own addresses, plane by plane, with the service port.
    locals: Vec<SocketAddr>,
    engine: Box<dyn Engine>,
    memory: u64,
    /// Whether the harness has asked for more than the first harnesses know.
    more: bool,
    /// What streams are opened with.
    stream: StreamConfig,
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
        self.locals().first().copied()
    }

    /// Own addresses, plane by plane, and the service port; none before it is open.
    pub fn locals(&self) -> &[SocketAddr] {
        self.open.as_ref().map_or(&[], |open| &open.locals)
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
            self.events.extend(answers::report(event, now, open.more));
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
            Request::Deregister(of) => self.deregister(of.mr),
            Request::PostRecv(post) => self.post_recv(now, &post),
            Request::PostSrqRecv(post) => self.post_srq_recv(now, &post),
            Request::WithdrawRecv(of) => {
                let endpoint = self.endpoint()?;
                let withdrawn = endpoint.withdraw_recv(of.conn, of.stream, of.wr_id);
                Ok(json!({"withdrawn": withdrawn.map_err(failure)?}))
            }
            Request::WithdrawSrqRecv(of) => {
                let srq = self.srq()?;
                let withdrawn = self.endpoint()?.withdraw_srq_recv(srq, of.wr_id);
                Ok(json!({"withdrawn": withdrawn.map_err(failure)?}))
            }
            Request::PostWork(post) => self.post_work(now, post),
            Request::OpenStream(of) => self.open_stream(now, &of),
            Request::ResetStream(of) => self.call(|e| e.reset_stream(now, of.conn, of.stream)),
            Request::Abort(of) => self.call(|e| e.abort(now, of.conn)),
            Request::MovePath(of) => {
                self.call(|e| e.move_path(now, of.conn, of.path, of.port, of.plane))
            }
            Request::RetirePath(of) => self.call(|e| e.retire_path(now, of.conn, of.path)),
            Request::SetPlane(of) => self.call(|e| e.set_plane(now, of.conn, of.plane, of.up)),
            Request::SetCapacity(of) => {
                opening::capacity(Some(of.mbps))?;
                self.call(|e| e.set_capacity(of.mbps))
            }
            Request::Stats(of) => self.stats(&of),
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

    /// The endpoint itself, for what a fake does not do.
    fn endpoint(&mut self) -> Result<&mut Endpoint, Failure> {
        let endpoint = self.engine()?.endpoint();
        endpoint.ok_or_else(|| Failure::new(Code::Misuse, "this endpoint has no such call"))
    }

    fn open(&mut self, now: u64, open: &Open) -> Result<Value, Failure> {
        if self.open.is_some() {
            let message = "the session is open; reset it first";
            return Err(Failure::new(Code::AlreadyOpen, message));
        }
        let more = open.more.clone().unwrap_or_default();
        let config = opening::config(self.seed, open, &more)?;
        let mut engine: Box<dyn Engine> = match &self.mutant {
            Some(mutant) => mutant.engine(config),
            None => Endpoint::new(config).map(|endpoint| Box::new(endpoint) as Box<dyn Engine>),
        }
        .map_err(failure)?;
        let srq = engine
            .endpoint()
            .filter(|_| more.srq)
            .map(Endpoint::create_srq);
        let service = opening::service(open, &more, srq)?;
        let conn = match open.role {
            Role::Initiator => engine.connect(now, open.peer, service),
            // The core numbers connections from 0, and the session takes one only.
            Role::Acceptor => engine.listen(service).map(|()| 0),
        }
        .map_err(failure)?;
        let own = more.planes.iter();
        let planes = own.map(|ip| SocketAddr::new(*ip, open.local.port()));
        self.open = Some(OpenSession {
            locals: [open.local].into_iter().chain(planes).collect(),
            engine,
            memory: 0,
            more: open.more.is_some(),
            stream: service.stream,
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
            remote_read: register.remote_read,
            remote_atomic: register.remote_atomic,
            invalidate: register.invalidate,
            domain: register.domain,
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

    fn deregister(&mut self, mr: u32) -> Result<Value, Failure> {
        let endpoint = self.endpoint()?;
        let len = endpoint.memory(mr).ok_or_else(|| no_region(mr))?.len() as u64;
        endpoint.deregister(mr).map_err(failure)?;
        if let Some(open) = &mut self.open {
            open.memory = open.memory.saturating_sub(len);
        }
        Ok(json!({}))
    }

    /// A call of the endpoint that answers nothing.
    fn call(
        &mut self,
        call: impl FnOnce(&mut Endpoint) -> Result<(), Misuse>,
    ) -> Result<Value, Failure> {
        call(self.endpoint()?).map_err(failure)?;
        Ok(json!({}))
    }
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
        Misuse::NoPath(_) => Code::NoSuchPath,
        Misuse::NoPlane(_) => Code::NoSuchPlane,
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
        further_operations: vec!["read", "cmp_swap", "fetch_add"],
        features: Feature::ALL.to_vec(),
        max_read_depth: u8::MAX,
        max_atomic_depth: u8::MAX,
        max_planes: 1 + opening::MOST_EXTRA_PLANES,
        srq: true,
        hints: true,
        max_paths: MOST_PATHS,
        max_streams: MOST_STREAMS,
        payload_sizes: vec![256, 512, 1024, 2048, 4096, 8192],
        initial_psn: true,
        counters,
    }
}
