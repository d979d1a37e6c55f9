//! CMP_SWAP: puts a new value into 8 remote bytes if they hold the one expected.

use super::message_body;
use crate::metaroce::headers::{Atomic, Msgh, Tagh};
use crate::metaroce::messages::check_atomic;

/// A CMP_SWAP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CmpSwap {
    /// Message header; its length is 8.
    pub msgh: Msgh,
    /// Where the bytes are; its immediate data is 0.
    pub tagh: Tagh,
    /// The new value and the one expected.
    pub atomic: Atomic,
}

message_body!(
    CmpSwap,
    [msgh: Msgh, tagh: Tagh, atomic: Atomic],
    |body, cbh| check_atomic(cbh, &body.msgh, &body.tagh)
);
