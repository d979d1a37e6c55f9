//! PATH_CHANGE: tells that a path has taken another route. Base header: the path and its epoch.

use super::{LIMIT, check_unpadded, fixed_body, rule};
use crate::metaroce::field::header;
use crate::serial::Psn;

/// The highest plane: a connection has that of the set-up, which is 0, and up to seven more.
const MAX_PLANE: u8 = 7;

header! {
    /// A PATH_CHANGE packet.
    pub struct PathChange, "PATH_CHANGE" {
        /// UDP source port of the path from now on.
        source_port: u16,
        /// Plane of the path from now on.
        plane: u8,
        /// Reserved.
        rsvd: u8 = 0,
        /// First new PSN on the new route.
        next_psn: Psn,
    }
}

fixed_body!(PathChange, |body, cbh| {
    check_unpadded(cbh)?;
    let (port, plane) = (u64::from(body.source_port), u64::from(body.plane));
    rule(port >= 1, PathChange::LAYER, "source_port", port, LIMIT)?;
    let known = body.plane <= MAX_PLANE;
    rule(known, PathChange::LAYER, "plane", plane, LIMIT)?;
});
