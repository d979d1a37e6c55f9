//! What a session says: capabilities, events and refusals.

use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use super::messages::Role;
use super::opening::Feature;
use crate::core::{Completion, ConnectionStats, Event, Features, PathStats, StreamStats, WorkKind};

/// Answer to `capabilities`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// Roles.
    pub roles: Vec<Role>,
    /// Kinds of work that every harness knows.
    pub operations: Vec<&'static str>,
    /// Other kinds of work.
    pub further_operations: Vec<&'static str>,
    /// Features that can be offered.
    pub features: Vec<Feature>,
    /// Reads taken at a time, at most.
    pub max_read_depth: u8,
    /// Atomic operations taken at a time, at most.
    pub max_atomic_depth: u8,
    /// Planes, at most.
    pub max_planes: u8,
    /// Whether streams can take from a shared receive queue.
    pub srq: bool,
    /// Whether it can give hints.
    pub hints: bool,
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
        /// `send`, `write`, `read`, `cmp_swap`, `fetch_add`, `recv` or `recv_write`.
        kind: &'static str,
        /// As in `ibv_wc_status`.
        status: String,
        /// Bytes.
        byte_len: u32,
        /// Immediate data.
        #[serde(skip_serializing_if = "Option::is_none")]
        imm: Option<u32>,
        /// Key that was made invalid.
        #[serde(skip_serializing_if = "Option::is_none")]
        invalidated: Option<u32>,
        /// The sender wants whoever waits to be woken.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        solicited: bool,
        /// When, ns on the session's clock.
        t_ns: u64,
    },
    /// A further stream is open.
    StreamOpened {
        /// Connection.
        conn: u32,
        /// Stream.
        stream: u16,
        /// When, ns on the session's clock.
        t_ns: u64,
    },
    /// A stream is over.
    StreamEnded {
        /// Connection.
        conn: u32,
        /// Stream.
        stream: u16,
        /// As in `ibv_wc_status`.
        status: String,
        /// When, ns on the session's clock.
        t_ns: u64,
    },
    /// A path is given up, or carries data again.
    PathAlive {
        /// Connection.
        conn: u32,
        /// Path.
        path: u16,
        /// Whether it carries data from now on.
        alive: bool,
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
    /// The line is no JSON object, or longer than [`super::LONGEST_LINE`].
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
    /// No such path.
    NoSuchPath,
    /// No such plane.
    NoSuchPlane,
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

/// What is shown of an event. A harness that has asked for nothing of it hears of no stream and no path, and of what a
/// completion says besides: it would not know it.
pub(super) fn report(event: Event, t_ns: u64, more: bool) -> Option<Report> {
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
        Event::Completion(done) => completion(&done, t_ns, more),
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
        _ if !more => return None,
        Event::StreamOpened { conn, stream } => Report::StreamOpened { conn, stream, t_ns },
        Event::StreamEnded {
            conn,
            stream,
            status,
        } => Report::StreamEnded {
            conn,
            stream,
            status: status.to_string(),
            t_ns,
        },
        Event::PathAlive { conn, path, alive } => Report::PathAlive {
            conn,
            path,
            alive,
            t_ns,
        },
    })
}

fn completion(done: &Completion, t_ns: u64, more: bool) -> Report {
    Report::Completion {
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
        imm: done.imm.filter(|_| more),
        invalidated: done.invalidated.filter(|_| more),
        solicited: done.solicited && more,
        t_ns,
    }
}

/// The bits of the features named.
pub(super) fn bits(features: &[Feature]) -> Features {
    let bits = features.iter().map(|feature| bit(*feature).0);
    Features(bits.fold(0, |all, bit| all | bit))
}

/// The names of the features whose bits are set.
fn names(features: Features) -> Vec<Feature> {
    let all = Feature::ALL.into_iter();
    all.filter(|feature| features.has(bit(*feature))).collect()
}

fn bit(feature: Feature) -> Features {
    match feature {
        Feature::Imm => Features::IMM,
        Feature::Inv => Features::INV,
        Feature::Reset => Features::RESET,
        Feature::Retire => Features::RETIRE,
        Feature::Change => Features::CHANGE,
    }
}

pub(super) fn connection(stats: &ConnectionStats) -> Value {
    json!({
        "state": stats.state,
        "paths": stats.paths,
        "planes": stats.planes,
        "streams": stats.streams,
        "streams_open": stats.streams_open,
        "features": names(stats.features),
        "payload_size": stats.payload_size,
        "read_depth": stats.read_depth,
        "atomic_depth": stats.atomic_depth,
        "in_flight": stats.in_flight,
        "window": stats.window,
        "hint_mbps": stats.hint_mbps,
        "messages_sent": stats.messages_sent,
        "messages_received": stats.messages_received,
        "bytes_received": stats.bytes_received,
    })
}

pub(super) fn path(stats: &PathStats) -> Value {
    json!({
        "src_port": stats.src_port,
        "plane": stats.plane,
        "epoch": stats.epoch,
        "state": stats.state,
        "window": stats.window,
        "alpha": stats.alpha,
        "srtt_ns": stats.srtt_ns,
        "rttvar_ns": stats.rttvar_ns,
        "in_flight": stats.in_flight,
        "ecn_off": stats.ecn_off,
        "marks": stats.marks,
        "losses": stats.losses,
        "retransmissions": stats.retransmissions,
        "timeouts": stats.timeouts,
        "probes": stats.probes,
        "packets_sent": stats.packets_sent,
        "bytes_sent": stats.bytes_sent,
    })
}

pub(super) fn stream(stats: &StreamStats) -> Value {
    json!({
        "state": stats.state,
        "work": stats.work,
        "receives": stats.receives,
        "credit": stats.credit,
        "in_flight": stats.in_flight,
    })
}
