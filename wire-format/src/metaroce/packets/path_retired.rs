//! PATH_RETIRED: the answer to PATH_RETIRE, what has arrived on the path for good.

use super::{Sack, check_unpadded, fixed_body};
use crate::metaroce::field::header;
use crate::serial::Psn;

header! {
    /// A PATH_RETIRED packet.
    pub struct PathRetired, "PATH_RETIRED" {
        /// Highest PSN of the epoch with none missing up to it.
        cum_psn: Psn,
        /// What has arrived behind the gap.
        sack: Sack,
    }
}

fixed_body!(PathRetired, |body, cbh| {
    check_unpadded(cbh)?;
    body.sack.check(PathRetired::LAYER)?;
});
