//! CONFIRM_ACK: the answer to CONFIRM; data may follow.

use super::{check_control, fixed_body};
use crate::metaroce::field::header;

header! {
    /// A CONFIRM_ACK packet.
    pub struct ConfirmAck, "CONFIRM_ACK" {
        /// The opener's random number.
        nonce: u64,
    }
}

fixed_body!(ConfirmAck, |body, cbh| {
    check_control(cbh)?;
});
