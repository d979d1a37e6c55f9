//! SEND: a piece of a two-sided message. Its place is (connection, stream, RQSN) and the offset in that receive.

use super::message_body;
use crate::metaroce::headers::{MFlags, Msgh};
use crate::metaroce::messages::check_piece;

/// A SEND packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Send<'a> {
    /// Message header.
    pub msgh: Msgh,
    /// The bytes of the message at `msgh.offset`.
    pub payload: &'a [u8],
}

message_body!(Send<'a>, [msgh: Msgh], payload, |body, cbh| {
    check_piece(cbh, &body.msgh, body.payload, MFlags(0))
});
