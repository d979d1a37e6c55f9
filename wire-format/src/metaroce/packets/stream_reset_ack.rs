//! STREAM_RESET_ACK: the answer to STREAM_RESET.

use super::{check_control, fixed_body};
use crate::metaroce::field::header;

header! {
    /// A STREAM_RESET_ACK packet.
    pub struct StreamResetAck, "STREAM_RESET_ACK" {
        /// The stream.
        stream: u16,
        /// Reserved.
        rsvd: u16 = 0,
    }
}

fixed_body!(StreamResetAck, |body, cbh| {
    check_control(cbh)?;
});
