//! The packets of the open profile, version 1.

mod field;
mod headers;
mod messages;
mod packets;
mod params;
mod parse;

pub use field::{U24, Value, Visitor};
pub use headers::{AckHeader, Atomic, Cbh, Flags, MFlags, Msgh, Tagh};
pub use messages::{ATOMIC_LEN, MAX_MSG_LEN};
pub use packets::{
    Accept, Ack, AckFlags, AckSack, AtomicResp, AtomicRespHeader, Body, Close, CloseAck,
    CloseReason, CmpSwap, Confirm, ConfirmAck, CreditKind, FetchAdd, Fill, Nak, NakCode, NakScope,
    Opcode, Open, PathChange, PathProbe, PathProbeAck, PathRetire, PathRetired, RateHint, ReadReq,
    ReadResp, Reject, RejectReason, RetireReason, RqCredit, Sack, Send, SendImm, SendImmHeader,
    SendInv, SendInvHeader, StreamOpen, StreamOpenAck, StreamReset, StreamResetAck, StreamStatus,
    Unknown, Write, WriteImm,
};
pub use params::{Features, Params, Planes};
pub use parse::{Lax, Packet, VERSION, parse, parse_lax, parse_unsealed};

/// The lab's default UDP destination port. It is configurable: no port is assigned to this profile.
pub const DEFAULT_PORT: u16 = 49200;
