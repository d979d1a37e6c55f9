//! READ_RESP: a piece of the answer to READ_REQ.

use super::message_body;
use crate::metaroce::headers::{MFlags, Msgh};
use crate::metaroce::messages::{check_no_receive, check_piece};

/// A READ_RESP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadResp<'a> {
    /// Message header, with RESP; stream, number and length are those of the request.
    pub msgh: Msgh,
    /// The bytes asked for at `msgh.offset`.
    pub payload: &'a [u8],
}

message_body!(ReadResp<'a>, [msgh: Msgh], payload, |body, cbh| {
    check_piece(cbh, &body.msgh, body.payload, MFlags::RESP)?;
    check_no_receive(&body.msgh)
});
