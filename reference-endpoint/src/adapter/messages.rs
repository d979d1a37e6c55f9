//! The requests of the adapter protocol.

use std::fmt;
use std::net::SocketAddr;

use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::answers::{Code, Failure};
use super::opening::{self, OpenMore};
use super::posts::{self, Post, PostWork, SrqPost, SrqWithdraw, Withdraw};

/// Longest line that is read, bytes.
pub const LONGEST_LINE: usize = 8 << 20;
/// Most bytes of memory that one line reads or writes: their hex digits and the rest fit one line.
pub const LONGEST_PIECE: usize = 3 << 20;
/// Longest wait of `poll`, ms.
pub const LONGEST_WAIT_MS: u64 = 600_000;

/// A request, read and checked as far as it can be alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Who are you?
    Hello(Hello),
    /// What can you do?
    Capabilities,
    /// Take a role on an address.
    Open(Open),
    /// Register memory.
    Register(Register),
    /// Put bytes into registered memory.
    WriteMemory(WriteMemory),
    /// Read bytes of registered memory.
    ReadMemory(Piece),
    /// SHA-256 of bytes of registered memory.
    Digest(Piece),
    /// Forget a region.
    Deregister(OfRegion),
    /// Post a receive.
    PostRecv(Post),
    /// Post a receive to the shared queue.
    PostSrqRecv(SrqPost),
    /// Take a receive back.
    WithdrawRecv(Withdraw),
    /// Take a receive back from the shared queue.
    WithdrawSrqRecv(SrqWithdraw),
    /// Post work of any other kind.
    PostWork(PostWork),
    /// What has happened?
    Poll(Poll),
    /// Counters of the endpoint.
    Counters(OfConnection),
    /// How are the connection, a path of it and a stream?
    Stats(Stats),
    /// Close the connection once its work is done.
    Close(OfConnection),
    /// End the connection at once.
    Abort(OfConnection),
    /// Open a further stream.
    OpenStream(OpenStream),
    /// End a stream.
    ResetStream(OfStream),
    /// Send a path from another port or through another plane.
    MovePath(MovePath),
    /// Give up a path.
    RetirePath(OfPath),
    /// A plane works, or does not.
    SetPlane(SetPlane),
    /// Another inbound capacity.
    SetCapacity(SetCapacity),
    /// Forget everything.
    Reset,
}

/// Body of `hello`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// Version of the adapter protocol.
    pub protocol: u32,
}

/// Which side of a connection to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The side that sends OPEN.
    Initiator,
    /// The side that answers it.
    Acceptor,
}

/// Body of `open`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// Which side to be.
    pub role: Role,
    /// Own address and service port.
    pub local: SocketAddr,
    /// The peer's address and service port.
    pub peer: SocketAddr,
    /// Service.
    pub service_id: u32,
    /// Paths in each direction.
    pub paths: u16,
    /// Streams.
    pub streams: u16,
    /// Payload bytes per packet.
    pub payload_size: u16,
    /// Messages in flight per stream.
    pub msg_window: u16,
    /// UDP source port of path 0; the other paths follow it.
    pub source_port_base: u16,
    /// Seed of every random choice.
    pub seed: u64,
    /// Longest delay of an acknowledgment, us.
    pub ack_delay_us: u16,
    /// First PSN of every path; random when missing.
    #[serde(default, deserialize_with = "present")]
    pub initial_psn: Option<u32>,
    /// Whatever else is asked for.
    #[serde(skip)]
    pub more: Option<OpenMore>,
}

/// Body of `register`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// Bytes.
    pub len: u64,
    /// Value of every byte.
    pub fill: u8,
    /// Whether the peer may write to it.
    pub remote_write: bool,
    /// Whether the peer may read it.
    #[serde(default)]
    pub remote_read: bool,
    /// Whether the peer may run atomic operations on it.
    #[serde(default)]
    pub remote_atomic: bool,
    /// Whether the peer may make its key invalid.
    #[serde(default)]
    pub invalidate: bool,
    /// Protection domain.
    #[serde(default)]
    pub domain: u32,
}

/// Body of `write_memory`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteMemory {
    /// Region.
    pub mr: u32,
    /// First byte in it.
    pub offset: u64,
    /// The bytes, as hex digits.
    pub hex: String,
}

/// Body of `read_memory` and `digest`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Piece {
    /// Region.
    pub mr: u32,
    /// First byte in it.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Body of `poll`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Poll {
    /// How long to wait for something to happen, ms, at most [`LONGEST_WAIT_MS`].
    pub timeout_ms: u64,
}

/// Body of `counters`, `close` and `abort`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfConnection {
    /// Connection.
    pub conn: u32,
}

/// Body of `deregister`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfRegion {
    /// Region.
    pub mr: u32,
}

/// Body of `stats`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stats {
    /// Connection.
    pub conn: u32,
    /// A path of the sending direction.
    #[serde(default, deserialize_with = "present")]
    pub path: Option<u16>,
    /// A stream.
    #[serde(default, deserialize_with = "present")]
    pub stream: Option<u16>,
}

/// Body of `open_stream`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenStream {
    /// Connection.
    pub conn: u32,
    /// Protection domain; that of `open` when missing.
    #[serde(default, deserialize_with = "present")]
    pub domain: Option<u32>,
}

/// Body of `reset_stream`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfStream {
    /// Connection.
    pub conn: u32,
    /// Stream.
    pub stream: u16,
}

/// Body of `retire_path`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfPath {
    /// Connection.
    pub conn: u32,
    /// Path.
    pub path: u16,
}

/// Body of `move_path`, which names a port, a plane or both.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MovePath {
    /// Connection.
    pub conn: u32,
    /// Path.
    pub path: u16,
    /// UDP source port.
    #[serde(default, deserialize_with = "present")]
    pub port: Option<u16>,
    /// Plane.
    #[serde(default, deserialize_with = "present")]
    pub plane: Option<u8>,
}

/// Body of `set_plane`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetPlane {
    /// Connection.
    pub conn: u32,
    /// Plane.
    pub plane: u8,
    /// Whether it works.
    pub up: bool,
}

/// Body of `set_capacity`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetCapacity {
    /// Inbound capacity, Mb/s.
    pub mbps: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Reads one line: the id, as far as it can be made out, and the request.
pub(super) fn read(line: &str) -> (Option<u64>, Result<Request, Failure>) {
    let fields = match fields(line) {
        Ok(fields) => fields,
        Err(failure) => return (None, Err(failure)),
    };
    let id = fields.get("id").and_then(Value::as_u64);
    (id, request(fields))
}

fn fields(line: &str) -> Result<Map<String, Value>, Failure> {
    if line.len() > LONGEST_LINE {
        let message = format_args!("a line has at most {LONGEST_LINE} bytes").to_string();
        return Err(Failure::new(Code::BadLine, message));
    }
    let Fields(fields) =
        serde_json::from_str(line).map_err(|error| Failure::new(Code::BadLine, error))?;
    Ok(fields)
}

fn request(mut fields: Map<String, Value>) -> Result<Request, Failure> {
    let bad = |message| Failure::new(Code::BadRequest, message);
    let id = fields.remove("id");
    if id.as_ref().and_then(Value::as_u64).is_none() {
        return Err(bad("id is not a number from 0 to 2^64 - 1"));
    }
    let Some(Value::String(op)) = fields.remove("op") else {
        return Err(bad("op is not a text"));
    };
    Ok(match op.as_str() {
        "hello" => Request::Hello(body(fields)?),
        "capabilities" => nothing(fields, Request::Capabilities)?,
        "open" => Request::Open(opening::read(fields)?),
        "register" => Request::Register(body(fields)?),
        "write_memory" => Request::WriteMemory(body(fields)?),
        "read_memory" => Request::ReadMemory(body(fields)?),
        "digest" => Request::Digest(body(fields)?),
        "deregister" => Request::Deregister(body(fields)?),
        "post_recv" => Request::PostRecv(body(fields)?),
        "post_srq_recv" => Request::PostSrqRecv(body(fields)?),
        "withdraw_recv" => Request::WithdrawRecv(body(fields)?),
        "withdraw_srq_recv" => Request::WithdrawSrqRecv(body(fields)?),
        "post_send" | "post_write" | "post_read" | "post_cmp_swap" | "post_fetch_add" => {
            Request::PostWork(posts::read(&op, fields)?)
        }
        "poll" => Request::Poll(body(fields)?),
        "counters" => Request::Counters(body(fields)?),
        "stats" => Request::Stats(body(fields)?),
        "close" => Request::Close(body(fields)?),
        "abort" => Request::Abort(body(fields)?),
        "open_stream" => Request::OpenStream(body(fields)?),
        "reset_stream" => Request::ResetStream(body(fields)?),
        "move_path" => Request::MovePath(move_path(fields)?),
        "retire_path" => Request::RetirePath(body(fields)?),
        "set_plane" => Request::SetPlane(body(fields)?),
        "set_capacity" => Request::SetCapacity(body(fields)?),
        "reset" => nothing(fields, Request::Reset)?,
        _ => {
            let message = format!("there is no operation {}", clipped(&op));
            return Err(Failure::new(Code::UnknownOp, message));
        }
    })
}

fn move_path(fields: Map<String, Value>) -> Result<MovePath, Failure> {
    let moved: MovePath = body(fields)?;
    if moved.port.is_none() && moved.plane.is_none() {
        let message = "move_path names a port, a plane or both";
        return Err(Failure::new(Code::BadRequest, message));
    }
    Ok(moved)
}

/// Takes the fields of these names away from the others.
pub(super) fn take(fields: &mut Map<String, Value>, names: &[&str]) -> Map<String, Value> {
    let taken = names.iter().filter_map(|name| fields.remove_entry(*name));
    taken.collect()
}

/// Reads fields that all have to be there, and no others, into a body.
pub(super) fn body<T: DeserializeOwned>(fields: Map<String, Value>) -> Result<T, Failure> {
    serde_json::from_value(Value::Object(fields))
        .map_err(|error| Failure::new(Code::BadRequest, clipped(&error.to_string())))
}

fn nothing(fields: Map<String, Value>, request: Request) -> Result<Request, Failure> {
    body::<Nothing>(fields).map(|Nothing {}| request)
}

/// The first of a foreign text: an answer must not grow with what it answers.
fn clipped(text: &str) -> String {
    text.chars().take(200).collect()
}

/// A field that may be missing, but not `null`.
pub(super) fn present<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(from).map(Some)
}

/// The fields of an object. A name that comes twice is refused: which one would count is anybody's guess.
struct Fields(Map<String, Value>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Map::new();
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            if fields.contains_key(&name) {
                return Err(A::Error::custom("a name comes twice"));
            }
            fields.insert(name, value);
        }
        Ok(Fields(fields))
    }
}
