//! WRITE: a piece of a one-sided message. Byte `i` of the payload goes to `va + offset + i`.

use super::message_body;
use crate::metaroce::headers::{MFlags, Msgh, Tagh};
use crate::metaroce::messages::{check_address, check_no_immediate, check_no_receive, check_piece};

/// A WRITE packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write<'a> {
    /// Message header; its RQSN is 0.
    pub msgh: Msgh,
    /// Where the message goes; its immediate data is 0.
    pub tagh: Tagh,
    /// The bytes of the message at `msgh.offset`.
    pub payload: &'a [u8],
}

message_body!(Write<'a>, [msgh: Msgh, tagh: Tagh], payload, |body, cbh| {
    check_piece(cbh, &body.msgh, body.payload, MFlags(0))?;
    check_no_receive(&body.msgh)?;
    check_no_immediate(&body.tagh)?;
    check_address(&body.msgh, &body.tagh)
});
