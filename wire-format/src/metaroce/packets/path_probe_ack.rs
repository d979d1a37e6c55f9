//! PATH_PROBE_ACK: what had arrived on the path when the probe did.

use super::{check_unpadded, fixed_body};
use crate::metaroce::field::{U24, header};
use crate::metaroce::packets::Sack;
use crate::serial::Psn;

header! {
    /// A PATH_PROBE_ACK packet.
    pub struct PathProbeAck, "PATH_PROBE_ACK" {
        /// Timestamp of the probe.
        timestamp_echo: u32,
        /// Highest PSN with none missing up to it.
        cum_psn: Psn,
        /// Echo of the probe's.
        highest_psn: Psn,
        /// Epoch of the rate hint.
        hint_epoch: u8,
        /// Rate allotted to the connection, Mb/s; 0 pauses, 0xffffff sets no limit.
        rate_hint: U24,
        /// What has arrived behind the gap.
        sack: Sack,
    }
}

fixed_body!(PathProbeAck, |body, cbh| {
    check_unpadded(cbh)?;
    body.sack.check(PathProbeAck::LAYER)?;
});
