//! CLOSE_ACK: the answer to CLOSE.

use super::{check_control, fixed_body};
use crate::metaroce::field::header;

header! {
    /// A CLOSE_ACK packet.
    pub struct CloseAck, "CLOSE_ACK" {
        /// The reason of the CLOSE answered.
        reason: u16,
        /// Reserved.
        rsvd: u16 = 0,
    }
}

fixed_body!(CloseAck, |body, cbh| {
    check_control(cbh)?;
});
