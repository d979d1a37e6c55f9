//! READ_REQ: asks for the bytes at an address, as many as the message is long.

use super::message_body;
use crate::metaroce::headers::{MFlags, Msgh, Tagh};
use crate::metaroce::messages::{check_address, check_no_immediate, check_single};

/// A READ_REQ packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadReq {
    /// Message header; its length is that of the Read.
    pub msgh: Msgh,
    /// Where the bytes are; its immediate data is 0.
    pub tagh: Tagh,
}

message_body!(ReadReq, [msgh: Msgh, tagh: Tagh], |body, cbh| {
    check_single(cbh, &body.msgh, MFlags(0))?;
    check_no_immediate(&body.tagh)?;
    check_address(&body.msgh, &body.tagh)
});
