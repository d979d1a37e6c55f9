//! FETCH_ADD: adds to 8 remote bytes.

use super::{message_body, rule};
use crate::metaroce::headers::{Atomic, Msgh, Tagh};
use crate::metaroce::messages::check_atomic;

/// A FETCH_ADD packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchAdd {
    /// Message header; its length is 8.
    pub msgh: Msgh,
    /// Where the bytes are; its immediate data is 0.
    pub tagh: Tagh,
    /// The summand; what a compare-and-swap expects is 0 here.
    pub atomic: Atomic,
}

message_body!(
    FetchAdd,
    [msgh: Msgh, tagh: Tagh, atomic: Atomic],
    |body, cbh| {
        check_atomic(cbh, &body.msgh, &body.tagh)?;
        let compare = body.atomic.compare;
        rule(
            compare == 0,
            Atomic::LAYER,
            "compare",
            compare,
            "a FETCH_ADD compares nothing",
        )
    }
);
