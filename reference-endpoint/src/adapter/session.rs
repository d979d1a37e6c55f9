//! The adapter without I/O: one line in, one line out, and the datagrams in between.

use std::collections::VecDeque;
use std::net::SocketAddr;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::messages::{Envelope, Failure, Open, Post, PostWrite, Request, Role};
use super::{NAME, PROFILE, PROTOCOL};
use crate::core::{
    Access, Buffer, Config, Counters, Ecn, Endpoint, Event, Misuse, Service, Transmit, WorkKind,
};
use crate::mutants::Mutant;

/// Longest request line, bytes.
const LONGEST_LINE: usize = 16 << 20;
/// Largest region, bytes.
const LARGEST_REGION: u64 = 256 << 20;
/// Paths, at most.
const MOST_PATHS: u16 = 256;
/// Streams, at most.
const MOST_STREAMS: u16 = 256;
/// Regions, at most.
const MOST_REGIONS: usize = 16384;

/// One party of a test: an endpoint, and at its edge perhaps a mutant.
pub struct Session {
    seed: u64,
    mutant: Option<Mutant>,
    opened: Option<Opened>,
    events: VecDeque<(u64, Event)>,
}

struct Opened {
    endpoint: Endpoint,
    local: SocketAddr,
    peer: SocketAddr,
}

impl Session {
    /// A session that has opened nothing. `seed` is mixed into that of each `open`.
    pub fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        Self {
            seed,
            mutant,
            opened: None,
            events: VecDeque::new(),
        }
    }

    /// Own address and service port, once `open` has named them.
    pub fn local(&self) -> Option<SocketAddr> {
        self.opened.as_ref().map(|opened| opened.local)
    }

    /// Whether `poll` has something to report.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// How long the request on `line` is willing to wait for events, ms; 0 for anything but `poll`.
    pub fn patience_ms(line: &str) -> u64 {
        match read(line) {
            Ok((_, Request::Poll { timeout_ms })) => timeout_ms,
            _ => 0,
        }
    }

    /// Serves one request; never waits. The answer is one line without its end.
    pub fn handle_line(&mut self, now: u64, line: &str) -> String {
        let (id, outcome) = match read(line) {
            Ok((id, request)) => (id, self.serve(now, request)),
            Err((id, failure)) => (id, Err(failure)),
        };
        self.drain(now);
        let answer = match outcome {
            Ok(value) => json!({ "id": id, "ok": value }),
            Err(failure) => json!({ "id": id, "error": failure }),
        };
        answer.to_string()
    }

    /// Takes one UDP payload.
    pub fn handle_datagram(&mut self, now: u64, from: SocketAddr, ecn: Ecn, bytes: &[u8]) {
        let Some(opened) = &mut self.opened else {
            return;
        };
        let mut datagrams = vec![(ecn, bytes.to_vec())];
        if let Some(mutant) = &mut self.mutant {
            mutant.incoming(now, (from, opened.local), &mut datagrams);
        }
        for (ecn, bytes) in datagrams {
            opened.endpoint.handle_datagram(now, from, ecn, &bytes);
        }
        self.drain(now);
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: u64) {
        if let Some(opened) = &mut self.opened {
            opened.endpoint.handle_timeout(now);
            self.drain(now);
        }
    }

    /// When [`Self::handle_timeout`] is next wanted, ns.
    pub fn poll_timeout(&self) -> Option<u64> {
        let endpoint = self
            .opened
            .as_ref()
            .and_then(|opened| opened.endpoint.poll_timeout());
        let mutant = self.mutant.as_ref().and_then(Mutant::deadline);
        endpoint.into_iter().chain(mutant).min()
    }

    /// Fills `out` with the next datagram to send at `now`, if there is one.
    pub fn poll_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        let opened = self.opened.as_mut()?;
        let Some(mutant) = &mut self.mutant else {
            let transmit = opened.endpoint.poll_transmit(now, out);
            self.drain(now);
            return transmit;
        };
        loop {
            if let Some((transmit, bytes)) = mutant.released(now) {
                out.clear();
                out.extend_from_slice(&bytes);
                return Some(transmit);
            }
            let transmit = opened.endpoint.poll_transmit(now, out)?;
            mutant.outgoing(now, opened.local, transmit, std::mem::take(out));
        }
    }

    fn drain(&mut self, now: u64) {
        let Some(opened) = &mut self.opened else {
            return;
        };
        while let Some(event) = opened.endpoint.poll_event() {
            self.events.push_back((now, event));
        }
    }

    fn serve(&mut self, now: u64, request: Request) -> Result<Value, Failure> {
        match request {
            Request::Hello { protocol } if protocol == PROTOCOL => Ok(json!({
                "protocol": PROTOCOL, "name": NAME, "version": env!("CARGO_PKG_VERSION"), "profile": PROFILE,
            })),
            Request::Hello { .. } => Err(Failure::new(
                "protocol",
                format!("this adapter speaks protocol {PROTOCOL}"),
            )),
            Request::Capabilities {} => Ok(capabilities()),
            Request::Open(open) => self.open(now, &open),
            Request::Register {
                len,
                fill,
                remote_write,
            } => self.register(len, fill, remote_write),
            Request::WriteMemory { mr, offset, hex } => self.write_memory(mr, offset, &hex),
            Request::ReadMemory { mr, offset, len } => {
                let bytes = self.bytes(mr, offset, len)?;
                Ok(json!({ "hex": to_hex(bytes) }))
            }
            Request::Digest { mr, offset, len } => {
                let bytes = self.bytes(mr, offset, len)?;
                Ok(json!({ "sha256": to_hex(&Sha256::digest(bytes)) }))
            }
            Request::PostRecv(post) => {
                let buffer = buffer(&post)?;
                self.endpoint()?
                    .post_recv(now, post.conn, post.stream, post.wr_id, buffer)
                    .map_err(misuse)?;
                Ok(json!({}))
            }
            Request::PostSend(post) => {
                let buffer = buffer(&post)?;
                self.endpoint()?
                    .post_send(now, post.conn, post.stream, post.wr_id, buffer)
                    .map_err(misuse)?;
                Ok(json!({}))
            }
            Request::PostWrite(post) => self.post_write(now, post),
            Request::Poll { .. } => {
                let events: Vec<Value> = self
                    .events
                    .drain(..)
                    .map(|(t_ns, event)| show(t_ns, &event))
                    .collect();
                Ok(json!({ "events": events }))
            }
            Request::Counters { conn } => {
                let counters = self.endpoint()?.counters(conn);
                let counters = counters.ok_or_else(|| misuse(Misuse::NoConnection(conn)))?;
                Ok(json!({ "counters": counters }))
            }
            Request::Close { conn } => {
                self.endpoint()?.close(now, conn).map_err(misuse)?;
                Ok(json!({}))
            }
            Request::Reset {} => {
                self.opened = None;
                self.events.clear();
                Ok(json!({}))
            }
        }
    }

    fn endpoint(&mut self) -> Result<&mut Endpoint, Failure> {
        let opened = self
            .opened
            .as_mut()
            .ok_or_else(|| Failure::new("not_open", "nothing has been opened"))?;
        Ok(&mut opened.endpoint)
    }

    fn open(&mut self, now: u64, open: &Open) -> Result<Value, Failure> {
        if self.opened.is_some() {
            return Err(Failure::new(
                "already_open",
                "one open per session until reset",
            ));
        }
        let last = open.source_port_base.checked_add(open.paths);
        let last = last.ok_or_else(|| {
            Failure::new(
                "bad_request",
                "source_port_base and paths exceed port 65535",
            )
        })?;
        let config = Config {
            local: open.local,
            seed: self.seed ^ open.seed,
            source_ports: open.source_port_base..last,
            ack_delay_us: open.ack_delay_us,
            max_connections: 16,
            max_regions: MOST_REGIONS,
        };
        if open.paths > MOST_PATHS || open.streams > MOST_STREAMS {
            return Err(Failure::new(
                "unsupported",
                format!("at most {MOST_PATHS} paths and {MOST_STREAMS} streams"),
            ));
        }
        let service = Service {
            service_id: open.service_id,
            paths: open.paths,
            streams: open.streams,
            payload_size: open.payload_size,
            msg_window: open.msg_window,
            initial_psn: open.initial_psn,
        };
        let mut endpoint = Endpoint::new(config).map_err(misuse)?;
        let conn = match open.role {
            Role::Initiator => endpoint.connect(now, open.peer, service).map_err(misuse)?,
            Role::Acceptor => {
                endpoint.listen(service).map_err(misuse)?;
                0
            }
        };
        self.opened = Some(Opened {
            endpoint,
            local: open.local,
            peer: open.peer,
        });
        Ok(json!({ "conn": conn }))
    }

    /// Address and service port of the peer, as `open` has named it.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.opened.as_ref().map(|opened| opened.peer)
    }

    fn register(&mut self, len: u64, fill: u8, remote_write: bool) -> Result<Value, Failure> {
        if len > LARGEST_REGION {
            return Err(Failure::new(
                "limit",
                format!("a region is at most {LARGEST_REGION} bytes"),
            ));
        }
        let len = usize::try_from(len).map_err(|e| Failure::new("limit", e))?;
        let endpoint = self.endpoint()?;
        let region = endpoint
            .register(len, Access { remote_write })
            .map_err(misuse)?;
        if let Some(bytes) = endpoint.memory_mut(region.mr) {
            bytes.fill(fill);
        }
        Ok(json!({ "mr": region.mr, "va": format!("{:#x}", region.va), "rkey": region.rkey }))
    }

    fn write_memory(&mut self, mr: u32, offset: u64, hex: &str) -> Result<Value, Failure> {
        let bytes = from_hex(hex)
            .ok_or_else(|| Failure::new("bad_request", "hex is not pairs of hex digits"))?;
        let region = self.endpoint()?.memory_mut(mr).ok_or_else(no_memory)?;
        let start = usize::try_from(offset).map_err(|_| no_memory())?;
        let end = start.checked_add(bytes.len()).ok_or_else(no_memory)?;
        region
            .get_mut(start..end)
            .ok_or_else(no_memory)?
            .copy_from_slice(&bytes);
        Ok(json!({}))
    }

    fn bytes(&mut self, mr: u32, offset: u64, len: u64) -> Result<&[u8], Failure> {
        let region = self.endpoint()?.memory(mr).ok_or_else(no_memory)?;
        let start = usize::try_from(offset).map_err(|_| no_memory())?;
        let end = usize::try_from(len)
            .ok()
            .and_then(|len| start.checked_add(len))
            .ok_or_else(no_memory)?;
        region.get(start..end).ok_or_else(no_memory)
    }

    fn post_write(&mut self, now: u64, post: PostWrite) -> Result<Value, Failure> {
        let PostWrite {
            conn,
            stream,
            wr_id,
            mr,
            offset,
            len,
            va,
            rkey,
        } = post;
        let digits = va
            .strip_prefix("0x")
            .ok_or_else(|| Failure::new("bad_request", "va is 0x and hex digits"))?;
        let va = u64::from_str_radix(digits, 16)
            .map_err(|e| Failure::new("bad_request", format!("va: {e}")))?;
        let buffer = buffer(&Post {
            conn,
            stream,
            wr_id,
            mr,
            offset,
            len,
        })?;
        self.endpoint()?
            .post_write(now, conn, stream, wr_id, buffer, va, rkey)
            .map_err(misuse)?;
        Ok(json!({}))
    }
}

fn read(line: &str) -> Result<(u64, Request), (u64, Failure)> {
    if line.len() > LONGEST_LINE {
        return Err((
            0,
            Failure::new(
                "bad_request",
                format!("a line is at most {LONGEST_LINE} bytes"),
            ),
        ));
    }
    let envelope: Envelope = serde_json::from_str(line)
        .map_err(|e| (0, Failure::new("bad_request", format!("no request: {e}"))))?;
    let id = envelope.id;
    let request = serde_json::from_value(Value::Object(envelope.request));
    request
        .map(|request| (id, request))
        .map_err(|e| (id, Failure::new("bad_request", e)))
}

fn capabilities() -> Value {
    let names = serde_json::to_value(Counters::default()).unwrap_or_default();
    let names: Vec<&String> = names
        .as_object()
        .map(|map| map.keys().collect())
        .unwrap_or_default();
    json!({
        "roles": ["initiator", "acceptor"],
        "operations": ["send", "write"],
        "max_paths": MOST_PATHS,
        "max_streams": MOST_STREAMS,
        "payload_sizes": [256, 512, 1024, 2048, 4096, 8192],
        "initial_psn": true,
        "counters": names,
    })
}

fn buffer(post: &Post) -> Result<Buffer, Failure> {
    let number = |n: u64| usize::try_from(n).map_err(|_| no_memory());
    Ok(Buffer {
        mr: post.mr,
        offset: number(post.offset)?,
        len: number(post.len)?,
    })
}

fn misuse(error: Misuse) -> Failure {
    let code = match &error {
        Misuse::NoConnection(_) => "no_connection",
        Misuse::NoStream(_) => "no_stream",
        Misuse::NoMemory => "no_memory",
        Misuse::Closing => "closing",
        Misuse::Limit { .. } => "limit",
        Misuse::Range { .. } => "bad_request",
    };
    Failure::new(code, error)
}

fn no_memory() -> Failure {
    Failure::new(
        "no_memory",
        "there is no such region, or not that many bytes in it",
    )
}

fn show(t_ns: u64, event: &Event) -> Value {
    match event {
        Event::Established {
            conn,
            paths,
            streams,
        } => {
            json!({ "type": "established", "conn": conn, "paths": paths, "streams": streams, "t_ns": t_ns })
        }
        Event::Completion {
            conn,
            stream,
            wr_id,
            kind,
            status,
            byte_len,
        } => {
            let kind = match kind {
                WorkKind::Send => "send",
                WorkKind::Write => "write",
                WorkKind::Recv => "recv",
            };
            json!({
                "type": "completion", "conn": conn, "stream": stream, "wr_id": wr_id, "kind": kind,
                "status": status.to_string(), "byte_len": byte_len, "t_ns": t_ns,
            })
        }
        Event::Closed { conn, reason } => {
            json!({ "type": "closed", "conn": conn, "reason": reason, "t_ns": t_ns })
        }
        Event::Failed {
            conn,
            status,
            message,
        } => json!({
            "type": "failed", "conn": conn, "status": status.to_string(), "message": message, "t_ns": t_ns,
        }),
    }
}

fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
            // Writing to a String cannot fail.
            let _infallible = write!(out, "{byte:02x}");
            out
        })
}

fn from_hex(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|d| u8::try_from(d).ok())
    };
    digits
        .chunks_exact(2)
        .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
        .collect()
}
