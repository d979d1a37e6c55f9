//! PATH_RETIRE: gives up a path at its epoch; both stand in the base header.

use super::{check_unpadded, fixed_body};
use crate::metaroce::field::{U24, code_space, header};
use crate::serial::Psn;

code_space! {
    /// Why a path is given up. Unknown code points stay representable.
    pub struct RetireReason(u8) {
        /// Nothing is acknowledged on it any more.
        FAILED = 0,
        /// Its plane is down.
        PLANE = 1,
        /// The sender has other reasons.
        LOCAL = 2,
    }
}

header! {
    /// A PATH_RETIRE packet.
    pub struct PathRetire, "PATH_RETIRE" {
        /// Highest PSN sent on the path; if none was, the one before the first of the epoch.
        highest_psn: Psn,
        /// Why.
        reason: RetireReason,
        /// Reserved.
        rsvd: U24 = 0,
    }
}

fixed_body!(PathRetire, |body, cbh| {
    check_unpadded(cbh)?;
});
