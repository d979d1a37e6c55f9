//! WRITE_IMM: a piece of a one-sided message with immediate data, which consumes a receive.

use super::message_body;
use crate::metaroce::headers::{MFlags, Msgh, Tagh};
use crate::metaroce::messages::{check_address, check_piece};

/// A WRITE_IMM packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteImm<'a> {
    /// Message header, with IMM; its RQSN names the receive consumed.
    pub msgh: Msgh,
    /// Where the message goes, and the immediate data.
    pub tagh: Tagh,
    /// The bytes of the message at `msgh.offset`.
    pub payload: &'a [u8],
}

message_body!(
    WriteImm<'a>,
    [msgh: Msgh, tagh: Tagh],
    payload,
    |body, cbh| {
        check_piece(cbh, &body.msgh, body.payload, MFlags::IMM)?;
        check_address(&body.msgh, &body.tagh)
    }
);
