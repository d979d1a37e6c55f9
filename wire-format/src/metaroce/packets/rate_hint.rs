//! RATE_HINT: a rate hint without an acknowledgment.

use super::{check_control, fixed_body};
use crate::metaroce::field::{U24, header};

header! {
    /// A RATE_HINT packet.
    pub struct RateHint, "RATE_HINT" {
        /// Epoch of the rate hint.
        hint_epoch: u8,
        /// Rate allotted to the connection, Mb/s; 0 pauses, 0xffffff sets no limit.
        rate_hint: U24,
    }
}

fixed_body!(RateHint, |body, cbh| {
    check_control(cbh)?;
});
