//! RQ_CREDIT: asks how many receives a stream has, or tells it.

use super::{LIMIT, check_control, fixed_body, rule};
use crate::metaroce::field::{code_space, header};
use crate::serial::Rqsn;

code_space! {
    /// What an RQ_CREDIT is for. There are no other code points.
    pub struct CreditKind(u8) {
        /// Asks for the limit.
        ASK = 0,
        /// Tells the limit.
        TELL = 1,
    }
}

header! {
    /// An RQ_CREDIT packet.
    pub struct RqCredit, "RQ_CREDIT" {
        /// The stream.
        stream: u16,
        /// See [`CreditKind`].
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
    let kind = u64::from(body.kind);
    rule(kind <= 1, RqCredit::LAYER, "kind", kind, LIMIT)?;
});
