//! FILL: takes a PSN whose message has gone with its stream, and carries nothing.

use super::message_body;
use crate::metaroce::headers::Msgh;
use crate::metaroce::messages::check_fill;

/// A FILL packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// Message header; all but the stream is 0.
    pub msgh: Msgh,
}

message_body!(Fill, [msgh: Msgh], |body, cbh| check_fill(cbh, &body.msgh));
