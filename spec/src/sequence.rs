//! Worked sequences: packets and events of a connection in order of time, as `vectors/sequences` holds them.
//!
//! The text of a file is given by the caller. [`parse_sequences`] takes the form strictly; what the packets hold is
//! checked by the tests of the crate that can read them. [`render`] draws a sequence for readers.

mod ground;
mod render;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use ground::{
    ConnectionState, EndState, Limits, MemoryState, ReceiveState, RegionState, StreamState,
};
pub use render::render;

/// Version of the form.
pub const SEQUENCES: &str = "metaroce-sequences/1";

/// Why a file of sequences cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum SequenceError {
    /// It is no JSON, or a key is unknown, missing or of another kind.
    #[error("not a file of sequences: {0}")]
    Form(#[from] serde_json::Error),
    /// It has another version.
    #[error("the format is {0:?} and not {SEQUENCES:?}")]
    Format(String),
}

/// Reads the text of one file.
///
/// # Errors
/// [`SequenceError`] when the text is not of the form `metaroce-sequences/1`; unknown keys are refused.
pub fn parse_sequences(text: &str) -> Result<SequenceFile, SequenceError> {
    let file: SequenceFile = serde_json::from_str(text)?;
    if file.format != SEQUENCES {
        return Err(SequenceError::Format(file.format));
    }
    Ok(file)
}

/// The sequences of one subject: right ones, and wrong ones made of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceFile {
    /// Where the JSON Schema of the form is.
    #[serde(rename = "$schema")]
    pub schema: String,
    /// [`SEQUENCES`].
    pub format: String,
    /// What the sequences are about; also the name of the file.
    pub subject: String,
    /// The sequences.
    pub sequences: Vec<Sequence>,
}

/// One sequence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sequence {
    /// Name that never changes.
    pub id: String,
    /// What happens, in a few words.
    pub title: String,
    /// What there is to see.
    pub shows: String,
    /// Of a wrong sequence: the right one that it was made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Of a wrong sequence: what was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// The connections; steps name theirs by its position.
    pub connections: Vec<ConnectionState>,
    /// Memory and receives that are there before the first step.
    pub memory: MemoryState,
    /// Clauses that the sequence exercises and keeps.
    pub satisfies: Vec<String>,
    /// Clauses that it breaks.
    pub violates: Vec<Violated>,
    /// What happens, in order of time.
    pub steps: Vec<Step>,
}

/// A clause that is broken, and where that shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Violated {
    /// Id of the clause.
    pub clause: String,
    /// Position of the step at which it shows; where something is missing, the first step after its time.
    pub step: usize,
}

/// One of the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// The one that has sent OPEN.
    Initiator,
    /// The one that has answered it.
    Acceptor,
}

impl End {
    /// The opposite end.
    pub const fn other(self) -> Self {
        match self {
            Self::Initiator => Self::Acceptor,
            Self::Acceptor => Self::Initiator,
        }
    }
}

/// The position of the first connection is left out.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the serialiser passes a reference"
)]
fn is_first(position: &usize) -> bool {
    *position == 0
}

/// Plane 0 is left out.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the serialiser passes a reference"
)]
fn is_plane_0(plane: &u8) -> bool {
    *plane == 0
}

/// Something that happens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Step {
    /// A packet is sent.
    Packet(PacketStep),
    /// An endpoint or its application does or reports something.
    Event(EventStep),
}

impl Step {
    /// When, ns since the start of the sequence.
    pub const fn at_ns(&self) -> u64 {
        match self {
            Self::Packet(packet) => packet.at_ns,
            Self::Event(event) => event.at_ns,
        }
    }

    /// Position of the connection concerned.
    pub const fn connection(&self) -> usize {
        match self {
            Self::Packet(packet) => packet.connection,
            Self::Event(event) => event.connection,
        }
    }
}

/// A packet, from its sending on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PacketStep {
    /// When it is sent, ns.
    pub at_ns: u64,
    /// Position of its connection.
    #[serde(default, skip_serializing_if = "is_first")]
    pub connection: usize,
    /// Who sends it.
    pub from: End,
    /// The plane of its source address; left out where it is 0.
    #[serde(default, skip_serializing_if = "is_plane_0")]
    pub plane: u8,
    /// The plane of its destination address, where that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_plane: Option<u8>,
    /// From which UDP source port; it goes to the port of the other end.
    pub source_port: u16,
    /// Codepoint with which it is sent.
    pub ecn: EcnMark,
    /// Name of its opcode.
    pub packet: String,
    /// The UDP payload, hex.
    pub datagram: String,
    /// The same by header and field, as in the golden packets.
    pub fields: BTreeMap<String, BTreeMap<String, FieldValue>>,
    /// What becomes of it.
    pub fate: Fate,
}

/// An ECN codepoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EcnMark {
    /// Not-ECT.
    NotEct,
    /// ECT(0).
    Ect0,
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FieldValue {
    /// A field of up to 32 bits.
    Number(u32),
    /// A wider one: of 64 bits `0x` and 16 digits, otherwise hex as on the wire.
    Text(String),
}

impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// What becomes of a packet on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Fate {
    /// It is lost.
    Lost,
    /// It arrives, after whatever was sent before it from the same source port.
    Delivered {
        /// When, ns.
        arrives_ns: u64,
    },
    /// It arrives with the mark CE.
    Marked {
        /// When, ns.
        arrives_ns: u64,
    },
    /// It arrives after packets that were sent after it.
    Delayed {
        /// When, ns.
        arrives_ns: u64,
    },
    /// It arrives twice.
    Duplicated {
        /// When first, ns.
        arrives_ns: u64,
        /// When again, ns.
        again_ns: u64,
    },
}

impl Fate {
    /// When the packet arrives first, ns; none if never.
    pub const fn arrives_ns(self) -> Option<u64> {
        match self {
            Self::Lost => None,
            Self::Delivered { arrives_ns }
            | Self::Marked { arrives_ns }
            | Self::Delayed { arrives_ns }
            | Self::Duplicated { arrives_ns, .. } => Some(arrives_ns),
        }
    }
}

/// Something at one end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventStep {
    /// When, ns.
    pub at_ns: u64,
    /// Position of the connection.
    #[serde(default, skip_serializing_if = "is_first")]
    pub connection: usize,
    /// Where.
    pub side: End,
    /// What.
    pub what: Happening,
}

/// What happens at an end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Happening {
    /// The connection and its streams are open.
    Established {
        /// Paths agreed.
        paths: u16,
        /// Streams open.
        streams: u16,
    },
    /// A Send is posted.
    PostSend(Posted),
    /// A Send with immediate data is posted.
    PostSendImm(Posted),
    /// A Send with invalidation is posted.
    PostSendInv(Posted),
    /// A Write is posted.
    PostWrite(Posted),
    /// A Write with immediate data is posted.
    PostWriteImm(Posted),
    /// A Read is posted.
    PostRead(Posted),
    /// A fetch and add is posted.
    PostFetchAdd(Posted),
    /// A compare and swap is posted.
    PostCmpSwap(Posted),
    /// A receive is posted.
    PostRecv {
        /// Its stream.
        stream: u16,
        /// Work request id.
        wr_id: u64,
        /// Its number.
        rqsn: u16,
        /// Bytes that it takes.
        length: u32,
        /// Address of its buffer.
        va: String,
    },
    /// A receive is taken away, although it was promised.
    TakeRecv {
        /// Its stream.
        stream: u16,
        /// Work request id.
        wr_id: u64,
        /// Its number.
        rqsn: u16,
    },
    /// Work is reported as complete.
    Completion {
        /// Its stream.
        stream: u16,
        /// Work request id.
        wr_id: u64,
        /// `send`, `write`, `read`, `fetch_add`, `cmp_swap` or `recv`.
        work: String,
        /// As in `ibv_wc_status`.
        status: String,
        /// Bytes.
        byte_len: u32,
        /// Immediate data of a receive.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        imm: Option<u32>,
    },
    /// A look at memory: what stands there at that time.
    Memory {
        /// Address of the first byte.
        va: String,
        /// The bytes, hex.
        hex: String,
    },
    /// A key opens nothing any more from now on.
    Invalidated {
        /// The key.
        rkey: u32,
    },
    /// A timer has run out; what the end does then are the steps after this one.
    Timer {
        /// `retransmission`, `grace` or `rnr`.
        name: String,
    },
    /// The sender gives a path another source port.
    PortChange {
        /// The path.
        path: u8,
        /// The port from now on.
        source_port: u16,
    },
    /// The connection is closed.
    Closed {
        /// Reason on the wire.
        reason: u16,
    },
    /// The connection has failed.
    Failed {
        /// As in `ibv_wc_status`.
        status: String,
    },
    /// Nothing more is looked at: what has not happened by now did not happen.
    End {},
}

/// Work that is posted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Posted {
    /// Its stream.
    pub stream: u16,
    /// Work request id.
    pub wr_id: u64,
    /// Bytes.
    pub length: u32,
    /// Remote address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub va: Option<String>,
    /// Remote key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rkey: Option<u32>,
    /// Local address of the result of a Read or an atomic request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,
    /// Immediate data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imm: Option<u32>,
    /// Key that the receiver invalidates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalidate: Option<u32>,
    /// First operand of an atomic request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_or_add: Option<String>,
    /// Second operand of an atomic request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compare: Option<String>,
}
