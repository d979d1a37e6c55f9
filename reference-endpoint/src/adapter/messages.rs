//! Requests and answers, as they stand on a line.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A request: its id, and what is asked for.
#[derive(Debug, Deserialize)]
pub(super) struct Envelope {
    pub id: u64,
    #[serde(flatten)]
    pub request: serde_json::Map<String, serde_json::Value>,
}

/// What is asked for.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Request {
    Hello {
        protocol: u32,
    },
    Capabilities {},
    Open(Open),
    Register {
        len: u64,
        fill: u8,
        remote_write: bool,
    },
    WriteMemory {
        mr: u32,
        offset: u64,
        hex: String,
    },
    ReadMemory {
        mr: u32,
        offset: u64,
        len: u64,
    },
    Digest {
        mr: u32,
        offset: u64,
        len: u64,
    },
    PostRecv(Post),
    PostSend(Post),
    PostWrite(PostWrite),
    Poll {
        timeout_ms: u64,
    },
    Counters {
        conn: u32,
    },
    Close {
        conn: u32,
    },
    Reset {},
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Role {
    Initiator,
    Acceptor,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Open {
    pub role: Role,
    pub local: SocketAddr,
    pub peer: SocketAddr,
    pub service_id: u32,
    pub paths: u16,
    pub streams: u16,
    pub payload_size: u16,
    pub msg_window: u16,
    pub source_port_base: u16,
    pub seed: u64,
    pub ack_delay_us: u16,
    pub initial_psn: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Post {
    pub conn: u32,
    pub stream: u16,
    pub wr_id: u64,
    pub mr: u32,
    pub offset: u64,
    pub len: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PostWrite {
    pub conn: u32,
    pub stream: u16,
    pub wr_id: u64,
    pub mr: u32,
    pub offset: u64,
    pub len: u64,
    pub va: String,
    pub rkey: u32,
}

/// Why a request was refused.
#[derive(Debug, Serialize)]
pub(super) struct Failure {
    pub code: &'static str,
    pub message: String,
}

impl Failure {
    pub(super) fn new(code: &'static str, message: impl ToString) -> Self {
        Self {
            code,
            message: message.to_string(),
        }
    }
}
