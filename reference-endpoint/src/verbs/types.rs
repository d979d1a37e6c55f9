//! What programs hand to the verbs and get from them.

use std::fmt;

use crate::core::{Remote, Status, WorkKind};

/// Makes the number of a thing a type of its own.
macro_rules! ids {
    ( $( $(#[$doc:meta])* $name:ident ),+ $(,)? ) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(super) u32);

        impl $name {
            /// The number by which errors name it.
            pub fn number(self) -> u32 {
                self.0
            }
        }
    )+ };
}

ids! {
    /// A protection domain.
    Pd,
    /// A completion queue.
    Cq,
    /// A shared receive queue.
    Srq,
    /// A queue pair; the number is its `qp_num`.
    Qp,
}

/// A memory region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mr {
    /// Address of its first byte, for both sides.
    pub addr: u64,
    /// Bytes.
    pub length: usize,
    /// Key for the entries of local work.
    pub lkey: u32,
    /// Key for the peer.
    pub rkey: u32,
    /// Protection domain.
    pub pd: Pd,
}

impl Mr {
    /// The entry that names `length` bytes from `offset` on.
    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge {
            addr: self.addr.wrapping_add(offset),
            length,
            lkey: self.lkey,
        }
    }

    /// What a peer needs to reach the bytes from `offset` on.
    pub fn remote(&self, offset: u64) -> Remote {
        Remote {
            va: self.addr.wrapping_add(offset),
            rkey: self.rkey,
        }
    }
}

/// Makes a set of flags.
macro_rules! flags {
    ( $(#[$doc:meta])* $name:ident { $( $(#[$fdoc:meta])* $flag:ident = $value:expr ),+ $(,)? } ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name(u32);

        impl $name {
            /// None of them.
            pub const NONE: Self = Self(0);
            $( $(#[$fdoc])* pub const $flag: Self = Self($value); )+

            /// Whether all of `other` are set.
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }
    };
}

flags! {
    /// What may be done with a region. The own side may always read it.
    AccessFlags {
        /// `IBV_ACCESS_LOCAL_WRITE`: receives and answers may be placed in it.
        LOCAL_WRITE = 0x1,
        /// `IBV_ACCESS_REMOTE_WRITE`: the peer may write to it; needs [`Self::LOCAL_WRITE`].
        REMOTE_WRITE = 0x2,
        /// `IBV_ACCESS_REMOTE_READ`: the peer may read it.
        REMOTE_READ = 0x4,
        /// `IBV_ACCESS_REMOTE_ATOMIC`: the peer may run atomic operations on it; needs [`Self::LOCAL_WRITE`].
        REMOTE_ATOMIC = 0x8,
        /// The peer may make its key invalid with a Send. An extension: in libibverbs the kind of region says so.
        REMOTE_INVALIDATE = 0x1_0000,
    }
}

flags! {
    /// Wishes for a work request; none of them is on the wire but [`Self::SOLICITED`].
    SendFlags {
        /// `IBV_SEND_FENCE`: it waits for the Reads and atomic operations before it.
        FENCE = 0x1,
        /// `IBV_SEND_SIGNALED`: success is reported too.
        SIGNALED = 0x2,
        /// `IBV_SEND_SOLICITED`: the completion at the other side is a solicited one.
        SOLICITED = 0x4,
        /// `IBV_SEND_INLINE`: the bytes are taken when the work is posted. They are found by the address alone, in whatever
        /// region of the device has it; no key is looked at.
        INLINE = 0x8,
    }
}

/// A piece of local memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sge {
    /// Address of the first byte.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// Local key of the region.
    pub lkey: u32,
}

/// What a work request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrOpcode {
    /// `IBV_WR_SEND`.
    Send,
    /// `IBV_WR_SEND_WITH_IMM`: immediate data.
    SendWithImm(u32),
    /// `IBV_WR_SEND_WITH_INV`: the key of the peer to make invalid.
    SendWithInv(u32),
    /// `IBV_WR_RDMA_WRITE`.
    RdmaWrite(Remote),
    /// `IBV_WR_RDMA_WRITE_WITH_IMM`: immediate data.
    RdmaWriteWithImm(Remote, u32),
    /// `IBV_WR_RDMA_READ`.
    RdmaRead(Remote),
    /// `IBV_WR_ATOMIC_CMP_AND_SWP`.
    AtomicCmpAndSwp {
        /// The 8 bytes of the peer.
        remote: Remote,
        /// What they are compared with.
        compare: u64,
        /// What they become if they are equal.
        swap: u64,
    },
    /// `IBV_WR_ATOMIC_FETCH_AND_ADD`.
    AtomicFetchAndAdd {
        /// The 8 bytes of the peer.
        remote: Remote,
        /// What is added, modulo 2^64.
        add: u64,
    },
}

/// The local bytes of a work request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendData {
    /// Pieces of registered memory. The bytes of several are put together when the work is posted; a Read and an atomic
    /// operation take one at most.
    Sges(Vec<Sge>),
    /// The bytes themselves, as with [`SendFlags::INLINE`], from memory that need not be registered.
    Inline(Vec<u8>),
}

/// A work request for the send queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendWr {
    /// The program's number for it.
    pub wr_id: u64,
    /// What it does.
    pub opcode: WrOpcode,
    /// Its local bytes.
    pub data: SendData,
    /// Wishes.
    pub flags: SendFlags,
}

impl SendWr {
    /// A signalled request with one piece of memory.
    pub fn new(wr_id: u64, opcode: WrOpcode, sge: Sge) -> Self {
        Self {
            wr_id,
            opcode,
            data: SendData::Sges(vec![sge]),
            flags: SendFlags::SIGNALED,
        }
    }

    /// A signalled request that brings its bytes along.
    pub fn inline(wr_id: u64, opcode: WrOpcode, bytes: &[u8]) -> Self {
        Self {
            wr_id,
            opcode,
            data: SendData::Inline(bytes.to_vec()),
            flags: SendFlags::SIGNALED | SendFlags::INLINE,
        }
    }

    /// The same with other wishes.
    pub fn with(self, flags: SendFlags) -> Self {
        Self { flags, ..self }
    }
}

/// A work request for a receive queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecvWr {
    /// The program's number for it.
    pub wr_id: u64,
    /// Where the message goes: one piece at most, none for messages without bytes.
    pub sg_list: Vec<Sge>,
}

impl RecvWr {
    /// A receive with one piece of memory.
    pub fn new(wr_id: u64, sge: Sge) -> Self {
        Self {
            wr_id,
            sg_list: vec![sge],
        }
    }
}

/// What has completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WcOpcode {
    /// `IBV_WC_SEND`.
    Send,
    /// `IBV_WC_RDMA_WRITE`.
    RdmaWrite,
    /// `IBV_WC_RDMA_READ`.
    RdmaRead,
    /// `IBV_WC_COMP_SWAP`.
    CompSwap,
    /// `IBV_WC_FETCH_ADD`.
    FetchAdd,
    /// `IBV_WC_RECV`.
    Recv,
    /// `IBV_WC_RECV_RDMA_WITH_IMM`.
    RecvRdmaWithImm,
}

impl WcOpcode {
    pub(super) fn is_receive(self) -> bool {
        matches!(self, Self::Recv | Self::RecvRdmaWithImm)
    }
}

impl From<WorkKind> for WcOpcode {
    fn from(kind: WorkKind) -> Self {
        match kind {
            WorkKind::Send => Self::Send,
            WorkKind::Write => Self::RdmaWrite,
            WorkKind::Read => Self::RdmaRead,
            WorkKind::CmpSwap => Self::CompSwap,
            WorkKind::FetchAdd => Self::FetchAdd,
            WorkKind::Recv => Self::Recv,
            WorkKind::RecvWrite => Self::RecvRdmaWithImm,
        }
    }
}

/// A work completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wc {
    /// The program's number for the work.
    pub wr_id: u64,
    /// How it ended.
    pub status: Status,
    /// What it was.
    pub opcode: WcOpcode,
    /// Bytes of the message; 0 unless it succeeded.
    pub byte_len: u32,
    /// The queue pair that it was posted to, or that took the receive from its shared queue.
    pub qp: Qp,
    /// Immediate data (`IBV_WC_WITH_IMM`).
    pub imm_data: Option<u32>,
    /// Key that was made invalid (`IBV_WC_WITH_INV`).
    pub invalidated_rkey: Option<u32>,
}

/// State of a queue pair. SQE does not occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QpState {
    /// It takes nothing.
    Reset,
    /// It takes receives.
    Init,
    /// Its stream is being opened.
    Rtr,
    /// Its stream is open.
    Rts,
    /// New work waits until it goes back to RTS. Local only.
    Sqd,
    /// Its stream is over: work is flushed.
    Err,
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Sqd => "SQD",
            Self::Err => "ERR",
        })
    }
}

/// How much a queue pair takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpCap {
    /// Work requests that are not complete.
    pub max_send_wr: usize,
    /// Receives that are not consumed.
    pub max_recv_wr: usize,
    /// Entries of a Send or Write.
    pub max_send_sge: usize,
    /// Bytes that a request brings along.
    pub max_inline_data: usize,
}

impl Default for QpCap {
    /// 128 work requests and receives, 4 entries, 256 bytes inline.
    fn default() -> Self {
        Self {
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 4,
            max_inline_data: 256,
        }
    }
}

/// What a queue pair is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpInit {
    /// Protection domain: its work uses memory of this domain only, and its peer reaches no other.
    pub pd: Pd,
    /// Where its work completes.
    pub send_cq: Cq,
    /// Where its receives complete.
    pub recv_cq: Cq,
    /// Shared queue that it takes its receives from.
    pub srq: Option<Srq>,
    /// How much it takes.
    pub cap: QpCap,
    /// All of its work is signalled.
    pub sq_sig_all: bool,
    /// Reads and atomic operations under way at a time; more wait. Without any they fail.
    pub max_rd_atomic: u32,
}

impl QpInit {
    /// One completion queue for both, the default sizes, 16 Reads and atomic operations, and only what asks for it is
    /// signalled.
    pub fn new(pd: Pd, cq: Cq) -> Self {
        Self {
            pd,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            cap: QpCap::default(),
            sq_sig_all: false,
            max_rd_atomic: 16,
        }
    }
}

/// What a queue pair is like now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpAttr {
    /// State. RTR as long as the stream is not open, even if RTS has been asked for.
    pub state: QpState,
    /// What it was made with.
    pub init: QpInit,
    /// Work that is not complete.
    pub send_posted: usize,
    /// Receives of its own that are not consumed.
    pub recv_posted: usize,
}

/// How many things a device keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Queue pairs.
    pub max_qp: usize,
    /// Protection domains.
    pub max_pd: usize,
    /// Completion queues.
    pub max_cq: usize,
    /// Entries of a completion queue.
    pub max_cqe: usize,
    /// Shared receive queues.
    pub max_srq: usize,
    /// Receives of a shared queue.
    pub max_srq_wr: usize,
    /// Work requests, and receives, of a queue pair.
    pub max_qp_wr: usize,
    /// Entries of a Send or Write.
    pub max_sge: usize,
    /// Bytes that a request brings along.
    pub max_inline_data: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_qp: 65_536,
            max_pd: 1024,
            max_cq: 65_536,
            max_cqe: 1 << 20,
            max_srq: 1024,
            max_srq_wr: 32_767,
            max_qp_wr: 32_767,
            max_sge: 16,
            max_inline_data: 4096,
        }
    }
}

/// What a device can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceAttr {
    /// How many things it keeps.
    pub limits: Limits,
    /// Memory regions.
    pub max_mr: usize,
    /// Bytes of a region.
    pub max_mr_size: usize,
    /// Bytes of a message.
    pub max_msg_size: usize,
    /// Entries of a receive, of a Read and of an atomic operation.
    pub max_recv_sge: usize,
    /// Connections.
    pub max_connections: usize,
}

/// What happens beside the completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsyncEvent {
    /// The stream of a queue pair that has asked for one is open.
    Established {
        /// The queue pair.
        qp: Qp,
    },
    /// The peer has opened a stream, and this queue pair has it: a new one made by the template of the listener, or one
    /// that has waited for it.
    Accepted {
        /// The queue pair.
        qp: Qp,
    },
    /// A queue pair is in ERR though the program has not put it there (`IBV_EVENT_QP_FATAL`). Its work is flushed.
    Disconnected {
        /// The queue pair.
        qp: Qp,
        /// What ended it.
        status: Status,
    },
    /// A queue pair in ERR takes no more receives from its shared queue: what it had taken is complete
    /// (`IBV_EVENT_QP_LAST_WQE_REACHED`).
    LastWqeReached {
        /// The queue pair.
        qp: Qp,
    },
    /// All work of a queue pair in SQD that had been begun is complete (`IBV_EVENT_SQ_DRAINED`).
    SqDrained {
        /// The queue pair.
        qp: Qp,
    },
    /// A completion queue has overrun (`IBV_EVENT_CQ_ERR`). The queue pairs that use it go to ERR.
    CqError {
        /// The queue.
        cq: Cq,
    },
    /// A shared queue has fewer receives than its limit (`IBV_EVENT_SRQ_LIMIT_REACHED`).
    SrqLimitReached {
        /// The queue.
        srq: Srq,
    },
    /// A path was given up, or opened again. See [`super::ext`].
    PathAlive {
        /// Connection.
        conn: u32,
        /// Path.
        path: u16,
        /// Whether it carries data from now on.
        alive: bool,
    },
}
