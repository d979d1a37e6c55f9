//! Stands between the harness and the core: the coming interface on top of today's.
#![expect(
    dead_code,
    reason = "stands in for the core until it offers all of this"
)]
use metaroce_endpoint::core as old;
pub use old::{Buffer, Ecn, Misuse, Region};
use std::net::{IpAddr, SocketAddr};

/// Whether the core speaks the whole specification.
pub const WHOLE: bool = false;

pub use metaroce_wire::metaroce::Features;
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    pub service_id: u32,
    pub paths: u16,
    pub streams: u16,
    pub first_streams: u16,
    pub payload_size: u16,
    pub msg_window: u16,
    pub initial_psn: Option<u32>,
    pub features: Features,
    pub read_depth: u8,
    pub atomic_depth: u8,
    pub extra_planes: u8,
    pub rnr_retries: u8,
    pub stream: StreamConfig,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamConfig {
    pub domain: u32,
    pub srq: Option<u32>,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    pub src_ip: IpAddr,
    pub src_port: u16,
    pub dst: SocketAddr,
    pub ecn: Ecn,
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

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The connection and its first streams are open.
    Established {
        /// Connection.
        conn: u32,
        /// Paths agreed.
        paths: u16,
        /// Streams agreed.
        streams: u16,
    },
    /// A further stream is open.
    StreamOpened {
        /// Connection.
        conn: u32,
        /// Stream.
        stream: u16,
    },
    /// A stream is over, though its connection is not: everything posted to it has been completed.
    StreamEnded {
        /// Connection.
        conn: u32,
        /// Stream.
        stream: u16,
        /// What ended it.
        status: Status,
    },
    /// Work is complete.
    Completion(Completion),
    /// The sender has given up a path, or opened it again.
    PathAlive {
        /// Connection.
        conn: u32,
        /// Path.
        path: u16,
        /// Whether it carries data from now on.
        alive: bool,
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
        /// Status of the work that failed with it.
        status: Status,
        /// In words.
        message: String,
    },
}

/// The end of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Connection.
    pub conn: u32,
    /// Stream.
    pub stream: u16,
    /// The caller's number for the work.
    pub wr_id: u64,
    /// Kind of work.
    pub kind: WorkKind,
    /// How it ended.
    pub status: Status,
    /// Bytes: the length of the message; 0 unless it succeeded.
    pub byte_len: u32,
    /// Immediate data that came with the message.
    pub imm: Option<u32>,
    /// Key that the message has made invalid.
    pub invalidated: Option<u32>,
    /// The sender wants whoever waits to be woken (VERB-010).
    pub solicited: bool,
}

/// Kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkKind {
    /// Two-sided send, with or without immediate data or a key.
    Send,
    /// One-sided write, with or without immediate data.
    Write,
    /// Read.
    Read,
    /// Compare and swap.
    CmpSwap,
    /// Fetch and add.
    FetchAdd,
    /// Receive of a Send.
    Recv,
    /// Receive consumed by a Write with immediate data (`IBV_WC_RECV_RDMA_WITH_IMM`).
    RecvWrite,
}

/// How work ended; shown by the name in `ibv_wc_status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Done.
    Success,
    /// The message was longer than the receive, or the answer longer than what was asked for.
    LocLenErr,
    /// The work cannot be sent: it is not what was agreed.
    LocQpOpErr,
    /// The work names memory that there is not.
    LocProtErr,
    /// Ended because the connection or the stream did.
    WrFlushErr,
    /// The peer refused the request.
    RemInvReqErr,
    /// The peer refused the access.
    RemAccessErr,
    /// The peer could not do it.
    RemOpErr,
    /// No answer after all retries.
    RetryExcErr,
    /// No receive at the peer after all retries.
    RnrRetryExcErr,
}

pub struct Config {
    pub local: SocketAddr,
    pub planes: Vec<IpAddr>,
    pub seed: u64,
    pub source_ports: std::ops::Range<u16>,
    pub ack_delay_us: u16,
    pub max_connections: usize,
    pub max_regions: usize,
    pub capacity_mbps: Option<u32>,
    pub hint_interval_us: u16,
    pub spray_run: u8,
}
impl Config {
    pub fn new(local: SocketAddr) -> Self {
        Self {
            local,
            planes: vec![],
            seed: 0,
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

pub struct Endpoint {
    inner: old::Endpoint,
    local: SocketAddr,
}
fn service(s: Service) -> old::Service {
    old::Service {
        service_id: s.service_id,
        paths: s.paths,
        streams: s.first_streams,
        payload_size: s.payload_size,
        msg_window: s.msg_window,
        initial_psn: s.initial_psn,
    }
}
impl Endpoint {
    pub fn new(c: Config) -> Result<Self, Misuse> {
        Ok(Self {
            local: c.local,
            inner: old::Endpoint::new(old::Config {
                local: c.local,
                seed: c.seed,
                source_ports: c.source_ports,
                ack_delay_us: c.ack_delay_us,
                max_connections: c.max_connections,
                max_regions: c.max_regions,
            })?,
        })
    }
    pub fn handle_datagram_at(
        &mut self,
        now: u64,
        _to: IpAddr,
        from: SocketAddr,
        ecn: Ecn,
        bytes: &[u8],
    ) {
        self.inner.handle_datagram(now, from, ecn, bytes)
    }
    pub fn handle_timeout(&mut self, now: u64) {
        self.inner.handle_timeout(now)
    }
    pub fn poll_transmit(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        let ip = self.local.ip();
        self.inner.poll_transmit(now, out).map(|t| Transmit {
            src_ip: ip,
            src_port: t.src_port,
            dst: t.dst,
            ecn: t.ecn,
        })
    }
    pub fn poll_timeout(&self) -> Option<u64> {
        self.inner.poll_timeout()
    }
    pub fn poll_event(&mut self) -> Option<Event> {
        Some(match self.inner.poll_event()? {
            old::Event::Established {
                conn,
                paths,
                streams,
            } => Event::Established {
                conn,
                paths,
                streams,
            },
            old::Event::Completion {
                conn,
                stream,
                wr_id,
                kind,
                status,
                byte_len,
            } => Event::Completion(Completion {
                conn,
                stream,
                wr_id,
                kind: match kind {
                    old::WorkKind::Send => WorkKind::Send,
                    old::WorkKind::Write => WorkKind::Write,
                    old::WorkKind::Recv => WorkKind::Recv,
                },
                status: st(status),
                byte_len,
                imm: None,
                invalidated: None,
                solicited: false,
            }),
            old::Event::Closed { conn, reason } => Event::Closed { conn, reason },
            old::Event::Failed {
                conn,
                status,
                message,
            } => Event::Failed {
                conn,
                status: st(status),
                message,
            },
        })
    }
    pub fn register(&mut self, len: usize, a: Access) -> Result<Region, Misuse> {
        self.inner.register(
            len,
            old::Access {
                remote_write: a.remote_write,
            },
        )
    }
    pub fn deregister(&mut self, _mr: u32) -> Result<(), Misuse> {
        Err(Misuse::NoMemory)
    }
    pub fn memory(&self, mr: u32) -> Option<&[u8]> {
        self.inner.memory(mr)
    }
    pub fn memory_mut(&mut self, mr: u32) -> Option<&mut [u8]> {
        self.inner.memory_mut(mr)
    }
    pub fn create_srq(&mut self) -> u32 {
        0
    }
    pub fn post_srq_recv(
        &mut self,
        _now: u64,
        _srq: u32,
        _wr_id: u64,
        _b: Buffer,
    ) -> Result<(), Misuse> {
        Err(Misuse::NoMemory)
    }
    pub fn listen(&mut self, s: Service) -> Result<(), Misuse> {
        self.inner.listen(service(s))
    }
    pub fn connect(&mut self, now: u64, peer: SocketAddr, s: Service) -> Result<u32, Misuse> {
        self.inner.connect(now, peer, service(s))
    }
    pub fn close(&mut self, now: u64, conn: u32) -> Result<(), Misuse> {
        self.inner.close(now, conn)
    }
    pub fn abort(&mut self, _now: u64, _conn: u32) -> Result<(), Misuse> {
        Err(Misuse::Closing)
    }
    pub fn open_stream(&mut self, _now: u64, _conn: u32, _c: StreamConfig) -> Result<u16, Misuse> {
        Err(Misuse::Closing)
    }
    pub fn reset_stream(&mut self, _now: u64, _conn: u32, _s: u16) -> Result<(), Misuse> {
        Err(Misuse::Closing)
    }
    pub fn post(&mut self, now: u64, conn: u32, stream: u16, w: Work) -> Result<(), Misuse> {
        let Data::Buffer(b) = w.data else {
            return Err(Misuse::NoMemory);
        };
        match w.op {
            Op::Send => self.inner.post_send(now, conn, stream, w.wr_id, b),
            Op::Write(r) => self
                .inner
                .post_write(now, conn, stream, w.wr_id, b, r.va, r.rkey),
            _ => Err(Misuse::NoMemory),
        }
    }
    pub fn post_recv(
        &mut self,
        now: u64,
        conn: u32,
        stream: u16,
        wr_id: u64,
        b: Buffer,
    ) -> Result<(), Misuse> {
        self.inner.post_recv(now, conn, stream, wr_id, b)
    }
    pub fn withdraw_recv(&mut self, _conn: u32, _stream: u16, _wr_id: u64) -> Result<bool, Misuse> {
        Ok(false)
    }
    pub fn move_path(
        &mut self,
        _now: u64,
        _conn: u32,
        _path: u16,
        _port: Option<u16>,
        _plane: Option<u8>,
    ) -> Result<(), Misuse> {
        Ok(())
    }
    pub fn retire_path(&mut self, _now: u64, _conn: u32, _path: u16) -> Result<(), Misuse> {
        Ok(())
    }
    pub fn set_plane(
        &mut self,
        _now: u64,
        _conn: u32,
        _plane: u8,
        _up: bool,
    ) -> Result<(), Misuse> {
        Ok(())
    }
}
fn st(s: old::Status) -> Status {
    match s {
        old::Status::Success => Status::Success,
        old::Status::LocLenErr => Status::LocLenErr,
        old::Status::WrFlushErr => Status::WrFlushErr,
        old::Status::RemInvReqErr => Status::RemInvReqErr,
        old::Status::RemAccessErr => Status::RemAccessErr,
        old::Status::RetryExcErr => Status::RetryExcErr,
    }
}
