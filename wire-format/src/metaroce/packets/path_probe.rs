//! PATH_PROBE: asks what has arrived on a path. It takes the route of the path's data.

use super::{check_unpadded, fixed_body};
use crate::metaroce::field::header;
use crate::serial::Psn;

header! {
    /// A PATH_PROBE packet.
    pub struct PathProbe, "PATH_PROBE" {
        /// Last PSN sent on the path.
        highest_psn: Psn,
    }
}

fixed_body!(PathProbe, |body, cbh| {
    check_unpadded(cbh)?;
});
