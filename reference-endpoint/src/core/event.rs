//! What the core reports.

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The connection and its streams are open.
    Established {
        /// Connection.
        conn: u32,
        /// Paths agreed.
        paths: u16,
        /// Streams agreed.
        streams: u16,
    },
    /// Work is complete.
    Completion {
        /// Connection.
        conn: u32,
        /// Stream.
        stream: u16,
        /// The caller's number for the work.
        wr_id: u64,
        /// Kind of work.
        kind: WorkKind,
        /// How it ended.
        status: Status,
        /// Bytes: the length of the message.
        byte_len: u32,
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

/// Kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkKind {
    /// Two-sided send.
    Send,
    /// One-sided write.
    Write,
    /// Receive.
    Recv,
}

/// How work ended; shown by the name in `ibv_wc_status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Done.
    Success,
    /// The message was longer than the receive.
    LocLenErr,
    /// Ended because the connection did.
    WrFlushErr,
    /// The peer refused the request.
    RemInvReqErr,
    /// The peer refused the access.
    RemAccessErr,
    /// No answer after all retries.
    RetryExcErr,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Success => "IBV_WC_SUCCESS",
            Self::LocLenErr => "IBV_WC_LOC_LEN_ERR",
            Self::WrFlushErr => "IBV_WC_WR_FLUSH_ERR",
            Self::RemInvReqErr => "IBV_WC_REM_INV_REQ_ERR",
            Self::RemAccessErr => "IBV_WC_REM_ACCESS_ERR",
            Self::RetryExcErr => "IBV_WC_RETRY_EXC_ERR",
        })
    }
}
