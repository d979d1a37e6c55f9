//! ACCEPT: the answer to OPEN. The acceptor keeps no state: the cookie brings back what it needs.

use super::{check_control, fixed_body};
use crate::metaroce::field::header;
use crate::metaroce::params::{Params, Planes};

header! {
    /// An ACCEPT packet.
    pub struct Accept<'a>, "ACCEPT" {
        /// What the acceptor agrees to, and its own connection id and first PSN.
        params: Params,
        /// Addresses of the acceptor in further planes.
        planes: Planes<'a>,
        /// Opaque to the opener, echoed in CONFIRM.
        cookie: [u8; 32],
    }
}

fixed_body!(Accept<'a>, |body, cbh| {
    check_control(cbh)?;
    body.params.check_reserved()?;
});
