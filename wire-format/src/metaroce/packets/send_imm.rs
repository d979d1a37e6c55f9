//! SEND_IMM: a piece of a two-sided message with immediate data, which every packet of the message carries.

use super::message_body;
use crate::metaroce::field::header;
use crate::metaroce::headers::{MFlags, Msgh};
use crate::metaroce::messages::check_piece;

header! {
    /// What a SEND_IMM has behind the message header.
    pub struct SendImmHeader, "SEND_IMM" {
        /// Immediate data, as the application gave it.
        imm: u32,
    }
}

/// A SEND_IMM packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendImm<'a> {
    /// Message header, with IMM.
    pub msgh: Msgh,
    /// Immediate data.
    pub header: SendImmHeader,
    /// The bytes of the message at `msgh.offset`.
    pub payload: &'a [u8],
}

message_body!(
    SendImm<'a>,
    [msgh: Msgh, header: SendImmHeader],
    payload,
    |body, cbh| check_piece(cbh, &body.msgh, body.payload, MFlags::IMM)
);
