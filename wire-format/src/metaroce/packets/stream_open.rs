//! STREAM_OPEN: opens a stream in both directions.

use super::{check_control, fixed_body};
use crate::metaroce::field::{U24, code_space, header};
use crate::serial::{Msn, Rqsn};

code_space! {
    /// What has become of a stream. Unknown code points stay representable.
    pub struct StreamStatus(u16) {
        /// The stream is open.
        OK = 0,
        /// No further stream is possible.
        NO_RESOURCE = 1,
        /// The stream id is in use.
        IN_USE = 2,
    }
}

header! {
    /// A STREAM_OPEN packet.
    pub struct StreamOpen, "STREAM_OPEN" {
        /// The stream.
        stream: u16,
        /// See [`StreamStatus`].
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

fixed_body!(StreamOpen, |body, cbh| {
    check_control(cbh)?;
});
