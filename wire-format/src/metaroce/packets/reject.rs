//! REJECT: the refusal of OPEN or CONFIRM, the same in every version.

use super::{check_control, fixed_body};
use crate::metaroce::field::header;

/// Why a connection was refused. Unknown code points stay representable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RejectReason(pub u8);

impl RejectReason {
    /// No common version.
    pub const VERSION: Self = Self(1);
    /// No such service.
    pub const NO_SERVICE: Self = Self(2);
    /// A limit of the acceptor is reached.
    pub const NO_RESOURCE: Self = Self(3);
    /// A parameter is not acceptable.
    pub const BAD_PARAMETERS: Self = Self(4);
    /// The cookie is not one of the acceptor's, or is too old.
    pub const BAD_COOKIE: Self = Self(5);
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
});
