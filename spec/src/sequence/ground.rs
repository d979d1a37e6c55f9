//! What is there before the first step: connections, streams, memory.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{End, is_first};

/// A connection before the first step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionState {
    /// Whether it is set up already; otherwise the values below are those that its sides offer.
    pub established: bool,
    /// The initiator.
    pub initiator: EndState,
    /// The acceptor.
    pub acceptor: EndState,
    /// Paths in each direction.
    pub paths: u16,
    /// Streams that may be open at a time.
    pub streams: u16,
    /// Messages of a stream under way at a time.
    pub msg_window: u16,
    /// Payload bytes of a full packet.
    pub payload_size: u16,
    /// The service.
    pub service_id: u32,
    /// Features agreed, by their names in `codes.yaml`.
    pub features: Vec<String>,
    /// Streams that are open.
    pub open_streams: Vec<StreamState>,
}

impl ConnectionState {
    /// How many planes both ends have.
    pub fn planes(&self) -> usize {
        1 + self.initiator.planes.len().min(self.acceptor.planes.len())
    }

    /// One of the two ends.
    pub const fn end(&self, end: End) -> &EndState {
        match end {
            End::Initiator => &self.initiator,
            End::Acceptor => &self.acceptor,
        }
    }
}

/// One end of a connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndState {
    /// IP address in plane 0.
    pub address: IpAddr,
    /// UDP port on which it receives.
    pub port: u16,
    /// Connection id under which it receives.
    pub cid: u32,
    /// First PSN of every path that it sends on.
    pub isn: u32,
    /// What its clock shows at the time 0 of the sequence, ns.
    pub clock_ns: u64,
    /// Unit of its timestamps, ns.
    pub ts_unit_ns: u16,
    /// Longest time that it delays an acknowledgment, us.
    pub ack_delay_us: u16,
    /// UDP source port of each path at first.
    pub source_ports: Vec<u16>,
    /// IP addresses in further planes.
    pub planes: Vec<IpAddr>,
    /// Reads that it queues at a time.
    pub read_depth: u8,
    /// Atomic requests that it queues at a time.
    pub atomic_depth: u8,
    /// 1 if it sends rate hints.
    pub hint_support: u8,
    /// Interval in which it renews them, us.
    pub hint_interval_us: u16,
    /// Inbound capacity that it shares among its senders, Mb/s; none where it sends no hints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_mbps: Option<u32>,
}

impl EndState {
    /// Its address in a plane; none where there is no such plane.
    pub fn address_in(&self, plane: u8) -> Option<IpAddr> {
        match plane.checked_sub(1) {
            None => Some(self.address),
            Some(extra) => self.planes.get(usize::from(extra)).copied(),
        }
    }
}

/// A stream that is open before the first step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamState {
    /// Its id.
    pub stream: u16,
    /// First MSN in both directions; no message has been sent yet.
    pub first_msn: u32,
    /// First RQSN in both directions.
    pub first_rqsn: u16,
    /// First RQSN for which each end has no receive.
    pub rq_limit: Limits,
}

/// A limit of each end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Receives of the initiator.
    pub initiator: u16,
    /// Receives of the acceptor.
    pub acceptor: u16,
}

/// Memory before the first step. What a region does not say that it holds is zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryState {
    /// Regions that are registered.
    pub regions: Vec<RegionState>,
    /// Receives that are posted.
    pub receives: Vec<ReceiveState>,
}

/// A region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionState {
    /// Whose it is.
    pub side: End,
    /// Position of the connection for which it is open.
    #[serde(default, skip_serializing_if = "is_first")]
    pub connection: usize,
    /// Address of its first byte, `0x` and 16 digits.
    pub va: String,
    /// Its key.
    pub rkey: u32,
    /// Bytes.
    pub length: u64,
    /// `remote_write`, `remote_read`, `remote_atomic`, `remote_invalidate`.
    pub allow: Vec<String>,
    /// What stands at its start, hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<String>,
}

/// A receive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiveState {
    /// Whose it is.
    pub side: End,
    /// Position of its connection.
    #[serde(default, skip_serializing_if = "is_first")]
    pub connection: usize,
    /// Its stream.
    pub stream: u16,
    /// Its number.
    pub rqsn: u16,
    /// Bytes that it takes.
    pub length: u32,
    /// Work request id.
    pub wr_id: u64,
    /// Address of its buffer.
    pub va: String,
}
