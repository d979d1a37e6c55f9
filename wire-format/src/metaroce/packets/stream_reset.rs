//! STREAM_RESET: ends a stream in both directions.

use super::{NakCode, check_control, fixed_body, rule};
use crate::metaroce::field::header;
use crate::serial::Msn;

header! {
    /// A STREAM_RESET packet.
    pub struct StreamReset, "STREAM_RESET" {
        /// The stream.
        stream: u16,
        /// Code of the NAK that led to it; 0 where none did.
        code: NakCode,
        /// Reserved.
        rsvd_a: u8 = 0,
        /// Message that the NAK has named; 0 where the code is 0.
        msn: Msn,
        /// Reserved.
        rsvd_b: u8 = 0,
    }
}

fixed_body!(StreamReset, |body, cbh| {
    check_control(cbh)?;
    let msn = u64::from(body.msn.value());
    let named = body.code.0 != 0 || msn == 0;
    rule(
        named,
        StreamReset::LAYER,
        "msn",
        msn,
        "a reset without a NAK names no message",
    )?;
});
