//! What the core reports.

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

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Success => "IBV_WC_SUCCESS",
            Self::LocLenErr => "IBV_WC_LOC_LEN_ERR",
            Self::LocQpOpErr => "IBV_WC_LOC_QP_OP_ERR",
            Self::LocProtErr => "IBV_WC_LOC_PROT_ERR",
            Self::WrFlushErr => "IBV_WC_WR_FLUSH_ERR",
            Self::RemInvReqErr => "IBV_WC_REM_INV_REQ_ERR",
            Self::RemAccessErr => "IBV_WC_REM_ACCESS_ERR",
            Self::RemOpErr => "IBV_WC_REM_OP_ERR",
            Self::RetryExcErr => "IBV_WC_RETRY_EXC_ERR",
            Self::RnrRetryExcErr => "IBV_WC_RNR_RETRY_EXC_ERR",
        })
    }
}
