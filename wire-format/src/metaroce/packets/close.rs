//! CLOSE: no more requests from this side.

use super::{check_control, fixed_body};
use crate::metaroce::field::{code_space, header};

code_space! {
    /// Why a connection ends. Unknown code points stay representable.
    pub struct CloseReason(u16) {
        /// The work is done.
        DONE = 0,
        /// An error has ended the connection.
        ERROR = 1,
        /// The endpoint is shutting down.
        GOING_AWAY = 2,
    }
}

header! {
    /// A CLOSE packet.
    pub struct Close, "CLOSE" {
        /// Why, see [`CloseReason`].
        reason: u16,
        /// Reserved.
        rsvd: u16 = 0,
    }
}

fixed_body!(Close, |body, cbh| {
    check_control(cbh)?;
});
