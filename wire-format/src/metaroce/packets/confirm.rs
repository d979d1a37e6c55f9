//! CONFIRM: the echo of cookie and parameters; from here on the acceptor keeps state.

use super::{check_control, fixed_body};
use crate::metaroce::field::header;
use crate::metaroce::headers::Params;

header! {
    /// A CONFIRM packet.
    pub struct Confirm, "CONFIRM" {
        /// The opener's parameters, as in OPEN.
        params: Params,
        /// The cookie of ACCEPT.
        cookie: [u8; 32],
        /// The acceptor's parameters, as in ACCEPT.
        accepted: Params,
    }
}

fixed_body!(Confirm, |body, cbh| {
    check_control(cbh)?;
    body.params.check_reserved()?;
    body.accepted.check_reserved()?;
});
