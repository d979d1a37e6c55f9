//! What a caller gives to the core, and what it must not.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

pub use metaroce_wire::metaroce::Features;

/// How an endpoint is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Own address in plane 0, and the service port of all planes.
    pub local: SocketAddr,
    /// Own addresses in the planes from 1 on, at most seven.
    pub planes: Vec<IpAddr>,
    /// Seed of every random choice: ids, first sequence numbers, nonces, keys, and the secret of the cookies. Two endpoints
    /// with the same seed make the same choices, which is for tests: whoever knows it can forge, and a peer takes one that
    /// starts again for the one before.
    pub seed: u64,
    /// UDP source ports that the paths share. Paths of one connection never have the same one (PATH-002); ports beyond
    /// the number of paths are there to change to.
    pub source_ports: Range<u16>,
    /// Longest delay of an acknowledgment, us.
    pub ack_delay_us: u16,
    /// Connections at a time, at most.
    pub max_connections: usize,
    /// Memory regions at a time, at most.
    pub max_regions: usize,
    /// Inbound capacity, Mb/s, of which the senders are told their shares; no hints without it.
    pub capacity_mbps: Option<u32>,
    /// Pause between two renewals of the shares, us.
    pub hint_interval_us: u16,
    /// New packets in a row on one path, 1 to 16 (PATH-006). More let a driver send them in one go.
    pub spray_run: u8,
}

impl Config {
    /// The default: a software endpoint with 256 source ports from 50000 on, of which the acknowledgments are delayed by
    /// 200 us at most, without hints and extra planes. The seed is a random one of the system.
    pub fn new(local: SocketAddr) -> Self {
        Self {
            local,
            planes: Vec::new(),
            seed: random_seed(),
            source_ports: 50_000..50_256,
            ack_delay_us: 200,
            max_connections: 4096,
            max_regions: 65_536,
            capacity_mbps: None,
            hint_interval_us: 100,
            spray_run: 1,
        }
    }
}

/// A number that nobody can foresee: the system gives it to every hash map.
fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// What is offered to or asked of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// Number of the service.
    pub service_id: u32,
    /// Paths in each direction, 1 to 256.
    pub paths: u16,
    /// Streams at a time, those of both sides together.
    pub streams: u16,
    /// Streams that the initiator opens at once, and without which [`super::Event::Established`] does not come on either
    /// side; never more than are agreed.
    pub first_streams: u16,
    /// Payload bytes per packet, a power of two from 256 to 8192.
    pub payload_size: u16,
    /// Messages in flight per stream, 1 to 32767. A peer can make a stream hold a record of some 90 bytes for each.
    pub msg_window: u16,
    /// First PSN of every path; random when missing.
    pub initial_psn: Option<u32>,
    /// Features offered: IMM, INV, RESET, RETIRE, CHANGE.
    pub features: Features,
    /// Reads that this side takes at a time, over all streams; none with 0.
    pub read_depth: u8,
    /// Atomic requests that this side takes at a time, over all streams; none with 0.
    pub atomic_depth: u8,
    /// Planes besides the addresses of the handshake, at most as many as [`Config::planes`].
    pub extra_planes: u8,
    /// Times that a message without a receive is tried again, 0 to 7; 7 is without limit.
    pub rnr_retries: u8,
    /// Protection domain and receive queue of the streams that are opened at once or by the peer.
    pub stream: StreamConfig,
}

impl Default for Service {
    /// Service 1 with 8 paths, 16 streams of which one is opened at once, packets of 4096 bytes, 1024 messages in flight,
    /// and every feature; no Reads, atomics and extra planes.
    fn default() -> Self {
        Self {
            service_id: 1,
            paths: 8,
            streams: 16,
            first_streams: 1,
            payload_size: 4096,
            msg_window: 1024,
            initial_psn: None,
            features: Features(!Features::RESERVED.0),
            read_depth: 0,
            atomic_depth: 0,
            extra_planes: 0,
            rnr_retries: 7,
            stream: StreamConfig::default(),
        }
    }
}

/// What a stream is opened with. All of it is local.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamConfig {
    /// Protection domain: only keys of this domain open memory to the stream (MEM-006).
    pub domain: u32,
    /// Shared receive queue that it takes its receives from; none for a queue of its own.
    pub srq: Option<u32>,
    /// Reads and atomic operations of this side that are under way on it at a time (`max_rd_atomic`): with 0 they fail.
    /// None leaves it to the peer how many there are.
    pub max_rd_atomic: Option<u32>,
}

/// What a peer may do with a region, and which streams it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access {
    /// It may write to it.
    pub remote_write: bool,
    /// It may read it.
    pub remote_read: bool,
    /// It may run atomic operations on it.
    pub remote_atomic: bool,
    /// It may make the key invalid (SEND_INV).
    pub invalidate: bool,
    /// Protection domain.
    pub domain: u32,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Buffer {
    /// Handle of the region.
    pub mr: u32,
    /// First byte.
    pub offset: usize,
    /// How many bytes.
    pub len: usize,
}

/// The local bytes of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// Bytes of a region: those to send, or the place of the answer of a Read or an atomic operation.
    Buffer(Buffer),
    /// The bytes themselves, taken when the work is posted (`IBV_SEND_INLINE`).
    Inline(Box<[u8]>),
}

impl Data {
    /// How many bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Buffer(buffer) => buffer.len,
            Self::Inline(bytes) => bytes.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Address and key of memory of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Remote {
    /// Address of the first byte.
    pub va: u64,
    /// Key of the region.
    pub rkey: u32,
}

/// What work does; the name in the verbs stands beside each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// `IBV_WR_SEND`.
    Send,
    /// `IBV_WR_SEND_WITH_IMM`: immediate data.
    SendImm(u32),
    /// `IBV_WR_SEND_WITH_INV`: the key of the peer to make invalid.
    SendInv(u32),
    /// `IBV_WR_RDMA_WRITE`.
    Write(Remote),
    /// `IBV_WR_RDMA_WRITE_WITH_IMM`: immediate data.
    WriteImm(Remote, u32),
    /// `IBV_WR_RDMA_READ`.
    Read(Remote),
    /// `IBV_WR_ATOMIC_CMP_AND_SWP`: 8 bytes that become `swap` if they are `compare`.
    CmpSwap {
        /// The 8 bytes.
        at: Remote,
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// `IBV_WR_ATOMIC_FETCH_AND_ADD`: 8 bytes to which `add` is added.
    FetchAdd {
        /// The 8 bytes.
        at: Remote,
        /// What is added, modulo 2^64.
        add: u64,
    },
}

/// Work to post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// The caller's number for it.
    pub wr_id: u64,
    /// What it does.
    pub op: Op,
    /// Local bytes. Of an atomic operation 8: where the value before it goes, in the byte order of the machine.
    pub data: Data,
    /// Success is reported too, not only failure (`IBV_SEND_SIGNALED`).
    pub signalled: bool,
    /// The completion at the other side wakes whoever waits for one (`IBV_SEND_SOLICITED`).
    pub solicited: bool,
    /// It waits for the Reads and atomic operations before it (`IBV_SEND_FENCE`).
    pub fence: bool,
}

impl Work {
    /// Signalled work without further wishes.
    pub fn new(wr_id: u64, op: Op, data: Data) -> Self {
        Self {
            wr_id,
            op,
            data,
            signalled: true,
            solicited: false,
            fence: false,
        }
    }
}

/// How a datagram leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Own address.
    pub src_ip: IpAddr,
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
    /// No such path on the connection.
    #[error("there is no path {0}")]
    NoPath(u16),
    /// No such plane.
    #[error("there is no plane {0}")]
    NoPlane(u8),
    /// No such shared receive queue.
    #[error("there is no shared receive queue {0}")]
    NoSrq(u32),
    /// No such region, or not that many bytes in it.
    #[error("the buffer does not lie inside a registered region")]
    NoMemory,
    /// The connection takes no more work.
    #[error("the connection is closing or closed")]
    Closing,
    /// What was asked for needs a feature that was not agreed, or is not possible in this state.
    #[error("{0}")]
    NotPossible(&'static str),
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

fn range(ok: bool, what: &'static str) -> Result<(), Misuse> {
    if ok {
        Ok(())
    } else {
        Err(Misuse::Range { what })
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), Misuse> {
        range(!self.source_ports.is_empty(), "source_ports")?;
        range(self.planes.len() <= 7, "planes")?;
        let family = |ip: &IpAddr| ip.is_ipv4() == self.local.is_ipv4();
        range(self.planes.iter().all(family), "planes (of one family)")?;
        range((1..=16).contains(&self.spray_run), "spray_run")?;
        range(
            (10..=10_000).contains(&self.hint_interval_us),
            "hint_interval_us",
        )?;
        range(self.ack_delay_us <= 50_000, "ack_delay_us")
    }

    /// The interval of hints as PARAMS names it: 0 where there are none (table PARAMS).
    pub(super) fn declared_hint_interval(&self) -> u16 {
        self.capacity_mbps.map_or(0, |_| self.hint_interval_us)
    }
}

impl Service {
    pub(super) fn check(&self, config: &Config) -> Result<(), Misuse> {
        range((1..=256).contains(&self.paths), "paths")?;
        range(
            usize::from(self.paths) <= config.source_ports.len(),
            "source_ports (one for each path is needed)",
        )?;
        range((1..=16384).contains(&self.streams), "streams")?;
        let payload = self.payload_size;
        range(
            (256..=8192).contains(&payload) && payload.is_power_of_two(),
            "payload_size",
        )?;
        range((1..=32767).contains(&self.msg_window), "msg_window")?;
        range(self.rnr_retries <= 7, "rnr_retries")?;
        range(
            usize::from(self.extra_planes) <= config.planes.len(),
            "extra_planes",
        )?;
        range(self.features.0 & Features::RESERVED.0 == 0, "features")
    }
}
