//! STREAM_OPEN_ACK: the answer to STREAM_OPEN.

use super::{check_control, fixed_body};
use crate::metaroce::field::{U24, header};
use crate::serial::{Msn, Rqsn};

header! {
    /// A STREAM_OPEN_ACK packet.
    pub struct StreamOpenAck, "STREAM_OPEN_ACK" {
        /// The stream.
        stream: u16,
        /// See [`StreamStatus`](super::StreamStatus).
        status: u16,
        /// Reserved.
        rsvd_a: u8 = 0,
        /// First message number, both directions.
        first_msn: Msn,
        /// First receive number, both directions.
        first_rqsn: Rqsn,
        /// First receive that the sender of this packet has not posted.
        rq_limit: Rqsn,
        /// Reserved.
        rsvd_b: u8 = 0,
        /// Queue pair of the sender of this packet.
        src_qpn: U24,
        /// Reserved.
        rsvd_c: u8 = 0,
        /// Queue pair of its receiver, 0 where not known.
        dst_qpn: U24,
    }
}

fixed_body!(StreamOpenAck, |body, cbh| {
    check_control(cbh)?;
});
