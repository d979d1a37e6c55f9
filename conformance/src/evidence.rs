//! The evidence of one test: a folder with the capture, the events and the declaration of how they came about.
//!
//! `capture.pcapng` holds both taps, `events.jsonl` what the parties said through their adapters, `test.json` the
//! [`Declaration`]. Nothing else is read to reach a verdict.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::trace::Side;

/// File name of the capture inside a test's folder.
pub const CAPTURE: &str = "capture.pcapng";
/// File name of the events.
pub const EVENTS: &str = "events.jsonl";
/// File name of the declaration.
pub const DECLARATION: &str = "test.json";
/// Version of the form of [`Declaration`] and [`Event`].
pub const SCHEMA: &str = "metaroce-test/1";

/// How a test was made: everything besides capture and events that a verdict depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    /// [`SCHEMA`].
    pub schema: String,
    /// Id of the test.
    pub test: String,
    /// What it is about, one line.
    pub title: String,
    /// The scenario, as YAML text.
    pub scenario: String,
    /// `sim` or `relay`.
    pub link: String,
    /// Seed of every random choice.
    pub seed: u64,
    /// The sides whose packets are judged.
    pub judged: Vec<Side>,
    /// Who sat at A.
    pub a: Party,
    /// Who sat at B.
    pub b: Party,
    /// What times mean on this link.
    pub timing: Timing,
    /// How often each rule acted, as counted by the injector.
    pub rules: Vec<RuleCount>,
    /// Packets that were still inside the link at the end, per sender: from A, from B.
    pub held: [u64; 2],
    /// SHA-256 of the capture file, hex: a capture of another run is noticed.
    pub capture_sha256: String,
    /// SHA-256 of the events file, hex.
    pub events_sha256: String,
    /// What went wrong outside the wire, if anything.
    pub problem: Option<Problem>,
    /// How the adapters at A and B ended, where they did not end well.
    #[serde(default)]
    pub ends: [Option<String>; 2],
    /// Which attempt this is: a test that the harness was too late for is made again, and its evidence replaced.
    pub attempt: u32,
}

impl Declaration {
    /// The party on `side`.
    pub fn party(&self, side: Side) -> &Party {
        match side {
            Side::A => &self.a,
            Side::B => &self.b,
        }
    }
}

/// One party of a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Party {
    /// `adapter`, `reference` or `tester`.
    pub kind: String,
    /// Name it gave itself.
    pub name: String,
    /// Version it gave itself.
    pub version: String,
    /// Its address and service port, as seen at its own tap.
    pub address: SocketAddr,
    /// The address and service port under which it knows its peer, as seen at its own tap.
    pub peer: SocketAddr,
    /// Longest time it delays an acknowledgment, us, as asked for at open.
    pub ack_delay_us: u16,
}

/// What times mean on the link of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// One-way delay that the link imposes, ns.
    pub delay_ns: u64,
    /// How much later than it should something may be seen without being late, ns: 0 in simulated time.
    pub allowance_ns: u64,
    /// Largest lateness of the harness itself measured during the test, ns.
    pub jitter_ns: u64,
}

/// How often a rule acted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleCount {
    /// Id of the rule.
    pub rule: String,
    /// Packets it acted on.
    pub fired: u64,
    /// Packets it must have acted on for the test to mean anything: its stimulus.
    pub at_least: u64,
}

/// What went wrong outside the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// The party it is charged to; none where the harness itself failed.
    pub side: Option<Side>,
    /// What happened.
    pub message: String,
}

/// Something a party said or the harness found out, in order of time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Time since the start of the test by the harness's clock, ns.
    pub t_ns: u64,
    /// The party concerned.
    pub side: Side,
    /// What.
    pub what: What,
}

/// Kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    /// A Send.
    Send,
    /// A Write.
    Write,
    /// A receive.
    Recv,
}

/// What an event says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum What {
    /// The connection and all its streams are open.
    Established {
        /// Paths agreed.
        paths: u16,
        /// Streams agreed.
        streams: u16,
    },
    /// Work was posted.
    Posted {
        /// Stream.
        stream: u16,
        /// Work request id, unique within the test and side.
        wr_id: u64,
        /// Kind.
        kind: WorkKind,
        /// Bytes.
        len: u32,
        /// Where a Write goes: address and key.
        remote: Option<(u64, u32)>,
    },
    /// Work was completed.
    Completed {
        /// Stream.
        stream: u16,
        /// Work request id.
        wr_id: u64,
        /// Kind.
        kind: WorkKind,
        /// As in `ibv_wc_status`, e.g. `IBV_WC_SUCCESS`.
        status: String,
        /// Bytes.
        byte_len: u32,
    },
    /// The connection was closed.
    Closed {
        /// Reason on the wire.
        reason: u16,
    },
    /// The connection failed.
    Failed {
        /// As in `ibv_wc_status`.
        status: String,
        /// In words.
        message: String,
    },
    /// The harness compared memory with what must be there.
    Memory {
        /// The work whose effect was looked at; the receive's id for a Send.
        wr_id: u64,
        /// `inside`: the bytes of the message; `outside`: the sentinel around them.
        part: MemoryPart,
        /// Bytes compared.
        len: u64,
        /// SHA-256 of what must be there, hex.
        expected: String,
        /// SHA-256 of what is there, hex.
        seen: String,
    },
    /// Counters, as the party reports them.
    Counters {
        /// By name.
        values: BTreeMap<String, u64>,
    },
    /// A small exchange that shows the party alive.
    Sanity {
        /// `before` or `after` the stimulus.
        when: String,
        /// Whether it went through.
        ok: bool,
        /// What was done, or what failed.
        detail: String,
    },
    /// The party refused a request that it should be able to serve.
    Refused {
        /// The operation.
        op: String,
        /// Its error code.
        code: String,
        /// Its message.
        message: String,
    },
}

/// Which bytes were compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryPart {
    /// The bytes of the message.
    Inside,
    /// The sentinel around them.
    Outside,
}
