//! The lines of the adapter protocol.

use std::fmt;
use std::net::SocketAddr;

use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

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
    /// Post a receive.
    PostRecv(Post),
    /// Post a Send.
    PostSend(Post),
    /// Post a Write.
    PostWrite(PostWrite),
    /// What has happened?
    Poll(Poll),
    /// Counters of the endpoint.
    Counters(OfConnection),
    /// Close the connection once its work is done.
    Close(OfConnection),
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

/// Body of `post_recv` and `post_send`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Post {
    /// Connection.
    pub conn: u32,
    /// Stream.
    pub stream: u16,
    /// The caller's number for the work.
    pub wr_id: u64,
    /// Local region.
    pub mr: u32,
    /// First byte in it.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Body of `post_write`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PostWrite {
    /// Connection.
    pub conn: u32,
    /// Stream.
    pub stream: u16,
    /// The caller's number for the work.
    pub wr_id: u64,
    /// Local region.
    pub mr: u32,
    /// First byte in it.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Remote address, `0x` and hex digits.
    pub va: String,
    /// Remote key.
    pub rkey: u32,
}

/// Body of `poll`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Poll {
    /// How long to wait for something to happen, ms, at most [`LONGEST_WAIT_MS`].
    pub timeout_ms: u64,
}

/// Body of `counters` and `close`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfConnection {
    /// Connection.
    pub conn: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Answer to `capabilities`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// Roles.
    pub roles: Vec<Role>,
    /// Kinds of work.
    pub operations: Vec<&'static str>,
    /// Paths in each direction, at most.
    pub max_paths: u16,
    /// Streams, at most.
    pub max_streams: u16,
    /// Payload sizes.
    pub payload_sizes: Vec<u16>,
    /// Whether the first PSN can be chosen.
    pub initial_psn: bool,
    /// Names of the counters.
    pub counters: Vec<String>,
}

/// An event, as `poll` reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Report {
    /// The connection and its streams are open.
    Established {
        /// Connection.
        conn: u32,
        /// Paths agreed.
        paths: u16,
        /// Streams agreed.
        streams: u16,
        /// When, ns on the session's clock.
        t_ns: u64,
    },
    /// Work is complete.
    Completion {
        /// Connection.
        conn: u32,
        /// Stream.
        stream: u16,
        /// The caller's number for the work.
        wr_id: u64,
        /// `send`, `write` or `recv`.
        kind: &'static str,
        /// As in `ibv_wc_status`.
        status: String,
        /// Bytes.
        byte_len: u32,
        /// When, ns on the session's clock.
        t_ns: u64,
    },
    /// The connection is closed.
    Closed {
        /// Connection.
        conn: u32,
        /// Reason on the wire.
        reason: u16,
        /// When, ns on the session's clock.
        t_ns: u64,
    },
    /// The connection failed.
    Failed {
        /// Connection.
        conn: u32,
        /// As in `ibv_wc_status`.
        status: String,
        /// In words.
        message: String,
        /// When, ns on the session's clock.
        t_ns: u64,
    },
}

/// Kinds of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The line is no JSON object, or longer than [`LONGEST_LINE`].
    BadLine,
    /// The object is not a request of the form that the schema describes, or a value is outside its range.
    BadRequest,
    /// There is no such operation.
    UnknownOp,
    /// Another version of the adapter protocol.
    BadProtocol,
    /// Only after `open`.
    NotOpen,
    /// Only once between `reset` and `reset`.
    AlreadyOpen,
    /// No such region.
    NoSuchRegion,
    /// Not that many bytes in the region.
    OutOfBounds,
    /// No such connection.
    NoSuchConnection,
    /// The stream is not open.
    NoSuchStream,
    /// A limit of the adapter is reached.
    Limit,
    /// The endpoint does not do that now.
    Misuse,
    /// The sockets cannot be had.
    Io,
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Kind.
    pub code: Code,
    /// In words.
    pub message: String,
}

impl Failure {
    pub(super) fn new(code: Code, message: impl fmt::Display) -> Self {
        Self {
            code,
            message: message.to_string(),
        }
    }
}

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
        "open" => Request::Open(body(fields)?),
        "register" => Request::Register(body(fields)?),
        "write_memory" => Request::WriteMemory(body(fields)?),
        "read_memory" => Request::ReadMemory(body(fields)?),
        "digest" => Request::Digest(body(fields)?),
        "post_recv" => Request::PostRecv(body(fields)?),
        "post_send" => Request::PostSend(body(fields)?),
        "post_write" => Request::PostWrite(body(fields)?),
        "poll" => Request::Poll(body(fields)?),
        "counters" => Request::Counters(body(fields)?),
        "close" => Request::Close(body(fields)?),
        "reset" => nothing(fields, Request::Reset)?,
        _ => {
            let message = format!("there is no operation {}", clipped(&op));
            return Err(Failure::new(Code::UnknownOp, message));
        }
    })
}

fn body<T: DeserializeOwned>(fields: Map<String, Value>) -> Result<T, Failure> {
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
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    u32::deserialize(from).map(Some)
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
