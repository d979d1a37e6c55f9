//! OPEN: the first packet of a connection, padded to the size of its answer.

use super::{check_control, fixed_body, rule};
use crate::metaroce::field::{Field, header};
use crate::metaroce::headers::Cbh;
use crate::metaroce::params::{Params, Planes};

header! {
    /// An OPEN packet.
    pub struct Open<'a>, "OPEN" {
        /// What the opener asks for.
        params: Params,
        /// Addresses of the opener in further planes.
        planes: Planes<'a>,
        /// Zero bytes, so that an ACCEPT is no larger than what drew it.
        padding: [u8; 32],
    }
}

fixed_body!(Open<'a>, |body, cbh| {
    check_control(cbh)?;
    rule(
        cbh.dcid.value() == 0,
        Cbh::LAYER,
        "dcid",
        u64::from(cbh.dcid.value()),
        "who sends OPEN or NAK UNKNOWN_CID knows no connection id",
    )?;
    let found = body.padding.excess();
    rule(found == 0, Open::LAYER, "padding", found, "padding is zero")?;
    body.params.check_reserved()?;
});
