//! REJECT: the refusal of OPEN or CONFIRM, the same in every version.

use super::{LIMIT, check_control, fixed_body, rule};
use crate::metaroce::field::{code_space, header};

code_space! {
    /// Why a connection was refused. Unknown code points stay representable.
    pub struct RejectReason(u8) {
        /// No common version.
        VERSION = 1,
        /// No such service.
        NO_SERVICE = 2,
        /// A limit of the acceptor is reached.
        NO_RESOURCE = 3,
        /// A parameter is not acceptable.
        BAD_PARAMETERS = 4,
        /// The cookie is not one of the acceptor's, or is too old.
        BAD_COOKIE = 5,
    }
}

header! {
    /// A REJECT packet.
    pub struct Reject, "REJECT" {
        /// Why, see [`RejectReason`].
        reason: u8,
        /// Lowest version that the acceptor speaks.
        ver_min: u8,
        /// Highest version that the acceptor speaks.
        ver_max: u8,
        /// Reserved.
        rsvd: u8 = 0,
        /// The opener's random number.
        nonce: u64,
        /// Depends on the reason; 0 where nothing is said.
        detail: u32,
    }
}

fixed_body!(Reject, |body, cbh| {
    check_control(cbh)?;
    let reason = u64::from(body.reason);
    rule(reason >= 1, Reject::LAYER, "reason", reason, LIMIT)?;
});
