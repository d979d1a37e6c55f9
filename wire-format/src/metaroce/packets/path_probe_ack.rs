//! PATH_PROBE_ACK: what had arrived on the path when the probe did.

use super::{check_unpadded, fixed_body, rule};
use crate::metaroce::field::header;
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
        /// What has arrived behind the gap.
        sack: Sack,
    }
}

fixed_body!(PathProbeAck, |body, cbh| {
    check_unpadded(cbh)?;
    rule(
        !body.sack.bit(0),
        PathProbeAck::LAYER,
        "sack",
        1,
        "bit 0 of the vector is zero",
    )?;
});
