//! The implementation under test: the adapter protocol that drives it, and the processes that speak it.
//!
//! One request at a time goes out as one line of JSON, one line comes back. The form is described by the JSON Schema
//! `reference-endpoint/schema/adapter.schema.json`.

mod process;
mod supervise;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Deserializer, Serialize};

pub use process::{AdapterProcess, Command};
pub use supervise::supervise;

/// Set once the program is to end.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Makes every call to an adapter end soon, with [`PartyError::Interrupted`], and every run with it.
pub fn interrupt() {
    INTERRUPTED.store(true, Ordering::SeqCst);
}

/// Whether [`interrupt`] was called.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Version of the adapter protocol.
pub const PROTOCOL: u32 = 1;

/// A request to an adapter.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// Who are you?
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
    },
    /// What can you do?
    Capabilities {},
    /// Take a role on an address.
    Open(Open),
    /// Register memory, every byte set to `fill`.
    Register {
        /// Bytes.
        len: u64,
        /// Value of every byte.
        fill: u8,
        /// Whether the peer may write to it.
        remote_write: bool,
    },
    /// Put bytes into registered memory.
    WriteMemory {
        /// Region.
        mr: u32,
        /// First byte.
        offset: u64,
        /// The bytes.
        hex: String,
    },
    /// Read bytes of registered memory.
    ReadMemory {
        /// Region.
        mr: u32,
        /// First byte.
        offset: u64,
        /// How many.
        len: u64,
    },
    /// SHA-256 of bytes of registered memory.
    Digest {
        /// Region.
        mr: u32,
        /// First byte.
        offset: u64,
        /// How many.
        len: u64,
    },
    /// Post a receive.
    PostRecv(Post),
    /// Post a Send.
    PostSend(Post),
    /// Post a Write.
    PostWrite {
        /// What and from where.
        #[serde(flatten)]
        post: Post,
        /// Remote address, `0x` and hex digits.
        va: String,
        /// Remote key.
        rkey: u32,
    },
    /// What has happened? Answers as soon as there is something.
    Poll {
        /// How long to wait for something, ms.
        timeout_ms: u64,
    },
    /// Counters of the connection.
    Counters {
        /// Connection.
        conn: u32,
    },
    /// Close the connection once its work is done.
    Close {
        /// Connection.
        conn: u32,
    },
    /// Forget everything.
    Reset {},
}

impl Request {
    /// Name of the operation on the wire.
    pub fn op(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "hello",
            Self::Capabilities {} => "capabilities",
            Self::Open(_) => "open",
            Self::Register { .. } => "register",
            Self::WriteMemory { .. } => "write_memory",
            Self::ReadMemory { .. } => "read_memory",
            Self::Digest { .. } => "digest",
            Self::PostRecv(_) => "post_recv",
            Self::PostSend(_) => "post_send",
            Self::PostWrite { .. } => "post_write",
            Self::Poll { .. } => "poll",
            Self::Counters { .. } => "counters",
            Self::Close { .. } => "close",
            Self::Reset {} => "reset",
        }
    }

    /// The request as one line, without its end.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn line(&self, id: u64) -> Result<String, serde_json::Error> {
        #[derive(Serialize)]
        struct Line<'r> {
            id: u64,
            #[serde(flatten)]
            request: &'r Request,
        }
        serde_json::to_string(&Line { id, request: self })
    }
}

/// The role a party takes, and its parameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Open {
    /// `initiator` or `acceptor`.
    pub role: &'static str,
    /// Own address and service port.
    pub local: SocketAddr,
    /// Peer's address and service port.
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
    /// First UDP source port to use.
    pub source_port_base: u16,
    /// Seed of the party's own random choices.
    pub seed: u64,
    /// Longest delay of an acknowledgment, us.
    pub ack_delay_us: u16,
    /// First PSN to use, where the party can choose it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_psn: Option<u32>,
}

/// Work to post.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Post {
    /// Connection.
    pub conn: u32,
    /// Stream.
    pub stream: u16,
    /// Work request id.
    pub wr_id: u64,
    /// Local region.
    pub mr: u32,
    /// First byte in it.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Answer to `hello`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Hello {
    /// Protocol version that the adapter speaks.
    pub protocol: u32,
    /// Name of the implementation.
    #[serde(deserialize_with = "shown")]
    pub name: String,
    /// Its version.
    #[serde(deserialize_with = "shown")]
    pub version: String,
    /// Profile of the protocol that it implements.
    #[serde(deserialize_with = "shown")]
    pub profile: String,
}

/// Answer to `capabilities`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Capabilities {
    /// `initiator`, `acceptor`.
    #[serde(deserialize_with = "words")]
    pub roles: Vec<String>,
    /// `send`, `write`.
    #[serde(deserialize_with = "words")]
    pub operations: Vec<String>,
    /// Paths in each direction, at most.
    pub max_paths: u16,
    /// Streams, at most.
    pub max_streams: u16,
    /// Payload sizes it can agree to.
    #[serde(deserialize_with = "few")]
    pub payload_sizes: Vec<u16>,
    /// Whether the first PSN can be chosen.
    #[serde(default)]
    pub initial_psn: bool,
    /// Names of its counters.
    #[serde(default, deserialize_with = "words")]
    pub counters: Vec<String>,
}

/// How many entries a list of capabilities may have.
const MOST_ENTRIES: usize = 1024;

/// A foreign text that will be shown: see [`printable`].
pub(crate) fn shown<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(|text| printable(&text))
}

fn few<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    let all = Vec::deserialize(from)?;
    if all.len() > MOST_ENTRIES {
        let message = format!(
            "a list of {} entries, {MOST_ENTRIES} are allowed",
            all.len()
        );
        return Err(serde::de::Error::custom(message));
    }
    Ok(all)
}

fn words<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let all: Vec<String> = few(from)?;
    Ok(all.iter().map(|word| printable(word)).collect())
}

/// Answer to `register`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Registered {
    /// Region.
    pub mr: u32,
    /// Address of its first byte, `0x` and hex digits.
    pub va: String,
    /// Key for the peer.
    pub rkey: u32,
}

/// Something an adapter reports from `poll`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
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
    },
    /// Work is complete.
    Completion {
        /// Connection.
        conn: u32,
        /// Stream.
        stream: u16,
        /// Work request id.
        wr_id: u64,
        /// Kind.
        kind: crate::evidence::WorkKind,
        /// As in `ibv_wc_status`.
        #[serde(deserialize_with = "shown")]
        status: String,
        /// Bytes.
        byte_len: u32,
    },
    /// The connection is closed.
    Closed {
        /// Connection.
        conn: u32,
        /// Reason on the wire.
        reason: u16,
    },
    /// The connection failed.
    Failed {
        /// Connection.
        conn: u32,
        /// As in `ibv_wc_status`.
        #[serde(deserialize_with = "shown")]
        status: String,
        /// In words.
        #[serde(deserialize_with = "shown")]
        message: String,
    },
}

/// Why a party did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartyError {
    /// It answered with an error.
    #[error("{op} was refused: {code}: {message}")]
    Refused {
        /// Operation.
        op: String,
        /// Its error code.
        code: String,
        /// Its message.
        message: String,
    },
    /// The harness could not start its supervisor, or not write a request.
    #[error("cannot start {command}: {message}")]
    Start {
        /// Command line.
        command: String,
        /// Why.
        message: String,
    },
    /// It ended.
    #[error("ended during {op}, {status}{stderr}")]
    Ended {
        /// Operation that it was asked for.
        op: String,
        /// Exit status in words.
        status: String,
        /// The last of what it wrote to standard error.
        stderr: String,
    },
    /// It runs on without listening or speaking.
    #[error("closed its standard input or output during {op} and runs on{stderr}")]
    Deaf {
        /// Operation that it was asked for.
        op: String,
        /// The last of what it wrote to standard error.
        stderr: String,
    },
    /// It did something wrong, and had words to say on standard error.
    #[error("{error}{stderr}")]
    Said {
        /// What it did.
        error: Box<PartyError>,
        /// The last of what it wrote to standard error.
        stderr: String,
    },
    /// Nothing is wrong with it: this program was told to end.
    #[error("interrupted")]
    Interrupted,
    /// It gave no answer in time.
    #[error("gave no answer to {op} within {seconds} s")]
    Silent {
        /// Operation.
        op: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// It answered something that is no answer.
    #[error("answered {op} with {what}{}", after_colon(line))]
    Garbage {
        /// Operation.
        op: String,
        /// What is wrong with it.
        what: String,
        /// The first of what it wrote.
        line: String,
    },
}

impl PartyError {
    /// The same with the last words of the party, if any.
    pub(crate) fn saying(self, stderr: String) -> Self {
        if stderr.is_empty() {
            return self;
        }
        let error = Box::new(self);
        Self::Said { error, stderr }
    }

    /// Whether it is the harness that is to blame, or nobody, and not the party.
    pub fn is_ours(&self) -> bool {
        matches!(self, Self::Start { .. } | Self::Interrupted)
    }
}

/// Reads the answer to request `id` from one line.
///
/// # Errors
/// [`PartyError::Refused`] for an error answer, [`PartyError::Garbage`] for anything else that is no answer.
pub fn read_answer(op: &str, id: u64, line: &str) -> Result<serde_json::Value, PartyError> {
    #[derive(Deserialize)]
    struct Failure {
        code: String,
        message: String,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Answer {
        id: u64,
        ok: Option<serde_json::Value>,
        error: Option<Failure>,
    }
    let garbage = |what: String| PartyError::Garbage {
        op: op.into(),
        what,
        line: printable(line),
    };
    let answer: Answer = serde_json::from_str(line)
        .map_err(|e| garbage(format!("no valid answer ({})", told(&e))))?;
    if answer.id != id {
        return Err(garbage(format!("the id {} instead of {id}", answer.id)));
    }
    match (answer.ok, answer.error) {
        (Some(value), None) => Ok(value),
        (None, Some(failure)) => Err(PartyError::Refused {
            op: op.into(),
            code: printable(&failure.code),
            message: printable(&failure.message),
        }),
        _ => Err(garbage("neither or both of ok and error".into())),
    }
}

/// Reads the value of an answer as `T`.
///
/// # Errors
/// [`PartyError::Garbage`] when it has another form.
pub fn read_value<T: serde::de::DeserializeOwned>(
    op: &str,
    value: serde_json::Value,
) -> Result<T, PartyError> {
    let line = printable(&value.to_string());
    serde_json::from_value(value).map_err(|e| PartyError::Garbage {
        op: op.into(),
        what: format!("a value of another form ({})", told(&e)),
        line,
    })
}

fn after_colon(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!(": {text}")
    }
}

/// What a parser says, which may quote the foreign text that it read.
fn told(error: &serde_json::Error) -> String {
    printable(&error.to_string())
}

/// The first of a foreign text, without anything that could act on a terminal.
pub(crate) fn printable(text: &str) -> String {
    const MOST: usize = 200;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => escaped(&text[..end]) + "...",
        None => escaped(text),
    }
}

/// A foreign text as one line that is safe to show.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Quotes and backslashes do no harm, and escaped twice nobody could read them.
        if matches!(c, '"' | '\'' | '\\') {
            out.push(c);
        } else {
            out.extend(c.escape_debug());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_flat_lines() {
        let post = Post {
            conn: 0,
            stream: 2,
            wr_id: 7,
            mr: 1,
            offset: 0,
            len: 5,
        };
        let line = Request::PostWrite {
            post,
            va: "0x10".into(),
            rkey: 9,
        }
        .line(3)
        .unwrap();
        assert_eq!(
            line,
            r#"{"id":3,"op":"post_write","conn":0,"stream":2,"wr_id":7,"mr":1,"offset":0,"len":5,"va":"0x10","rkey":9}"#
        );
        assert_eq!(
            Request::Reset {}.line(1).unwrap(),
            r#"{"id":1,"op":"reset"}"#
        );
    }

    #[test]
    fn answers_are_told_from_garbage() {
        assert!(read_answer("poll", 1, r#"{"id":1,"ok":{}}"#).is_ok());
        for bad in [
            "",
            "hello",
            r#"{"id":2,"ok":{}}"#,
            r#"{"id":1}"#,
            r#"{"id":1,"ok":{},"x":1}"#,
            "\u{1b}[2J",
            "{\"id\":1,\"\\u001b[2J\":0}",
        ] {
            let error = read_answer("poll", 1, bad).unwrap_err();
            assert!(matches!(error, PartyError::Garbage { .. }), "{bad}");
            assert!(!error.to_string().contains('\u{1b}'));
        }
        let refused =
            read_answer("open", 1, r#"{"id":1,"error":{"code":"x","message":"y"}}"#).unwrap_err();
        assert_eq!(refused.to_string(), "open was refused: x: y");
    }
}
