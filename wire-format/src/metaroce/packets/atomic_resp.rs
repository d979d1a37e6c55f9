//! ATOMIC_RESP: the answer to CMP_SWAP and FETCH_ADD.

use super::message_body;
use crate::metaroce::field::header;
use crate::metaroce::headers::{MFlags, Msgh};
use crate::metaroce::messages::{check_atomic_len, check_single};

header! {
    /// What an ATOMIC_RESP has behind the message header.
    pub struct AtomicRespHeader, "ATOMIC_RESP" {
        /// Value of the 8 bytes before the operation.
        original: u64,
    }
}

/// An ATOMIC_RESP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicResp {
    /// Message header, with RESP; stream and number are those of the request.
    pub msgh: Msgh,
    /// The value.
    pub header: AtomicRespHeader,
}

message_body!(
    AtomicResp,
    [msgh: Msgh, header: AtomicRespHeader],
    |body, cbh| {
        check_single(cbh, &body.msgh, MFlags::RESP)?;
        check_atomic_len(&body.msgh)
    }
);
