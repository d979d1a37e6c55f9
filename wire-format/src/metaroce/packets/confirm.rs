//! CONFIRM: the echo of cookie and parameters; from here on the acceptor keeps state.

use super::{check_control, fixed_body};
use crate::metaroce::field::header;
use crate::metaroce::params::{Params, Planes};

header! {
    /// A CONFIRM packet.
    pub struct Confirm<'a>, "CONFIRM" {
        /// The opener's parameters, as in OPEN.
        params: Params,
        /// Addresses of the opener in further planes, as in OPEN.
        planes: Planes<'a>,
        /// The cookie of ACCEPT.
        cookie: [u8; 32],
        /// The acceptor's parameters, as in ACCEPT.
        accepted: Params,
        /// Addresses of the acceptor in further planes, as in ACCEPT.
        accepted_planes: Planes<'a>,
    }
}

fixed_body!(Confirm<'a>, |body, cbh| {
    check_control(cbh)?;
    body.params.check_reserved()?;
    body.accepted.check_reserved()?;
});
