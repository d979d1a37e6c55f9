//! RQ_CREDIT: asks how many receives a stream has, or tells it.

use super::{check_control, fixed_body};
use crate::metaroce::field::header;
use crate::serial::Rqsn;

header! {
    /// An RQ_CREDIT packet.
    pub struct RqCredit, "RQ_CREDIT" {
        /// The stream.
        stream: u16,
        /// 0 asks, 1 tells.
        kind: u8,
        /// Reserved.
        rsvd_a: u8 = 0,
        /// First receive not yet posted; 0 where it asks.
        rq_limit: Rqsn,
        /// Reserved.
        rsvd_b: u16 = 0,
    }
}

fixed_body!(RqCredit, |body, cbh| {
    check_control(cbh)?;
});
