//! The packets of the open profile, version 1.

mod field;
mod headers;
mod packets;
mod parse;

pub use field::{U24, Value, Visitor};
pub use headers::{AckHeader, Cbh, Flags, MFlags, Msgh, Params, Tagh};
pub use packets::{
    Accept, Ack, AckFlags, AckSack, Body, Close, CloseAck, Confirm, ConfirmAck, Nak, NakCode,
    NakScope, Opcode, Open, PathProbe, PathProbeAck, Reject, RejectReason, RqCredit, Sack, Send,
    StreamOpen, StreamOpenAck, Unknown, Write,
};
pub use parse::{Lax, MAX_MSG_LEN, Packet, VERSION, parse, parse_lax, parse_unsealed};

/// The lab's default UDP destination port. It is configurable: no port is assigned to this profile.
pub const DEFAULT_PORT: u16 = 49200;
