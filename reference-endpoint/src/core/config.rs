//! What a caller gives to the core, and what it must not.

use std::net::SocketAddr;
use std::ops::Range;

/// How an endpoint is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Own address and service port.
    pub local: SocketAddr,
    /// Seed of every random choice.
    pub seed: u64,
    /// UDP source ports: path `p` uses the first plus `p`.
    pub source_ports: Range<u16>,
    /// Longest delay of an acknowledgment, us.
    pub ack_delay_us: u16,
    /// Connections at a time, at most.
    pub max_connections: usize,
    /// Memory regions at a time, at most.
    pub max_regions: usize,
}

/// What is offered to or asked of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// Number of the service.
    pub service_id: u32,
    /// Paths in each direction, 1 to 256.
    pub paths: u16,
    /// Streams.
    pub streams: u16,
    /// Payload bytes per packet, a power of two from 256 to 8192.
    pub payload_size: u16,
    /// Messages in flight per stream, 1 to 32767.
    pub msg_window: u16,
    /// First PSN of every path; random when missing.
    pub initial_psn: Option<u32>,
}

/// What a peer may do with a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access {
    /// It may write to it.
    pub remote_write: bool,
}

/// A registered region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Local handle.
    pub mr: u32,
    /// Address of the first byte, for the peer.
    pub va: u64,
    /// Key, for the peer.
    pub rkey: u32,
}

/// Bytes of a registered region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffer {
    /// Handle of the region.
    pub mr: u32,
    /// First byte.
    pub offset: usize,
    /// How many bytes.
    pub len: usize,
}

/// How a datagram leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// UDP source port.
    pub src_port: u16,
    /// Where to.
    pub dst: SocketAddr,
    /// Congestion mark to set.
    pub ecn: Ecn,
}

/// Explicit congestion notification, RFC 3168.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Ecn {
    /// Not ECN-capable.
    #[default]
    NotEct,
    /// ECN-capable, reserved for L4S.
    Ect1,
    /// ECN-capable.
    Ect0,
    /// Congestion experienced.
    Ce,
}

/// A call that cannot be served: the caller's fault, and nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// No such connection.
    #[error("there is no connection {0}")]
    NoConnection(u32),
    /// No such stream on the connection, or not open yet.
    #[error("stream {0} is not open")]
    NoStream(u16),
    /// No such region, or not that many bytes in it.
    #[error("the buffer does not lie inside a registered region")]
    NoMemory,
    /// The connection takes no more work.
    #[error("the connection is closing or closed")]
    Closing,
    /// A limit of the configuration is reached.
    #[error("the limit of {limit} {what} is reached")]
    Limit {
        /// What is limited.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A parameter is outside its range.
    #[error("{what} is outside its range")]
    Range {
        /// Which parameter.
        what: &'static str,
    },
}

impl Service {
    pub(super) fn check(&self, ports: &Range<u16>) -> Result<(), Misuse> {
        let range = |ok, what| {
            if ok {
                Ok(())
            } else {
                Err(Misuse::Range { what })
            }
        };
        range((1..=256).contains(&self.paths), "paths")?;
        range(
            usize::from(self.paths) <= ports.len(),
            "source_ports (one for each path is needed)",
        )?;
        range((1..=16384).contains(&self.streams), "streams")?;
        let payload = self.payload_size;
        range(
            (256..=8192).contains(&payload) && payload.is_power_of_two(),
            "payload_size",
        )?;
        range((1..=32767).contains(&self.msg_window), "msg_window")
    }
}
