//! SEND_INV: a piece of a two-sided message that invalidates a key at its receiver. Every packet of it names the key.

use super::message_body;
use crate::metaroce::field::header;
use crate::metaroce::headers::{MFlags, Msgh};
use crate::metaroce::messages::check_piece;

header! {
    /// What a SEND_INV has behind the message header.
    pub struct SendInvHeader, "SEND_INV" {
        /// Key that the receiver invalidates before it completes the receive.
        rkey: u32,
    }
}

/// A SEND_INV packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendInv<'a> {
    /// Message header, with INV.
    pub msgh: Msgh,
    /// The key.
    pub header: SendInvHeader,
    /// The bytes of the message at `msgh.offset`.
    pub payload: &'a [u8],
}

message_body!(
    SendInv<'a>,
    [msgh: Msgh, header: SendInvHeader],
    payload,
    |body, cbh| check_piece(cbh, &body.msgh, body.payload, MFlags::INV)
);
