//! CLOSE: no more requests from this side.

use super::{check_control, fixed_body};
use crate::metaroce::field::header;

header! {
    /// A CLOSE packet.
    pub struct Close, "CLOSE" {
        /// 0 done, 1 error, 2 going away.
        reason: u16,
        /// Reserved.
        rsvd: u16 = 0,
    }
}

fixed_body!(Close, |body, cbh| {
    check_control(cbh)?;
});
