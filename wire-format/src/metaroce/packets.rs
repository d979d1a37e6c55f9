//! The packet types: one file each, and the one list of them.

mod accept;
mod ack;
mod ack_sack;
mod atomic_resp;
mod close;
mod close_ack;
mod cmp_swap;
mod confirm;
mod confirm_ack;
mod fetch_add;
mod fill;
mod nak;
mod open;
mod path_change;
mod path_probe;
mod path_probe_ack;
mod path_retire;
mod path_retired;
mod rate_hint;
mod read_req;
mod read_resp;
mod reject;
mod rq_credit;
mod send;
mod send_imm;
mod send_inv;
mod stream_open;
mod stream_open_ack;
mod stream_reset;
mod stream_reset_ack;
mod unknown;
mod write;
mod write_imm;

pub use accept::Accept;
pub use ack::{Ack, AckFlags};
pub use ack_sack::{AckSack, Sack};
pub use atomic_resp::{AtomicResp, AtomicRespHeader};
pub use close::{Close, CloseReason};
pub use close_ack::CloseAck;
pub use cmp_swap::CmpSwap;
pub use confirm::Confirm;
pub use confirm_ack::ConfirmAck;
pub use fetch_add::FetchAdd;
pub use fill::Fill;
pub use nak::{Nak, NakCode, NakScope};
pub use open::Open;
pub use path_change::PathChange;
pub use path_probe::PathProbe;
pub use path_probe_ack::PathProbeAck;
pub use path_retire::{PathRetire, RetireReason};
pub use path_retired::PathRetired;
pub use rate_hint::RateHint;
pub use read_req::ReadReq;
pub use read_resp::ReadResp;
pub use reject::{Reject, RejectReason};
pub use rq_credit::{CreditKind, RqCredit};
pub use send::Send;
pub use send_imm::{SendImm, SendImmHeader};
pub use send_inv::{SendInv, SendInvHeader};
pub use stream_open::{StreamOpen, StreamStatus};
pub use stream_open_ack::StreamOpenAck;
pub use stream_reset::StreamReset;
pub use stream_reset_ack::StreamResetAck;
pub use unknown::Unknown;
pub use write::Write;
pub use write_imm::WriteImm;

use super::field::{Visitor, Writer};
use super::headers::{Cbh, Msgh, Tagh};
use crate::Error;

/// What every packet body does.
pub(crate) trait PacketBody<'a>: Sized {
    /// Reads the body. `input` starts behind the base header and ends before the trailer.
    fn read_body(input: &'a [u8], cbh: &Cbh) -> Result<Self, Error>;
    /// Checks the values of fields, base header included, against the rules of this packet type.
    fn check(&self, cbh: &Cbh) -> Result<(), Error>;
    /// Writes the body without payload padding.
    fn put_body(&self, out: &mut Writer<'_>);
    /// Shows header by header what the body holds.
    fn visit_body(&self, f: &mut Visitor<'_>);
    /// The payload of a data packet.
    fn payload(&self) -> Option<&'a [u8]> {
        None
    }
    /// Bytes on the wire, without padding.
    fn body_len(&self) -> usize;
}

/// Kind of a packet. Unknown code points stay representable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opcode(pub u8);

macro_rules! packets {
    ( $( $(#[$doc:meta])* $code:literal $konst:ident $variant:ident $(<$life:lifetime>)? ),+ $(,)? ) => {
        impl Opcode {
            $( $(#[$doc])* pub const $konst: Self = Self($code); )+

            /// Every code point of this version that this crate reads.
            pub const ALL: &'static [Self] = &[ $( Self::$konst ),+ ];

            /// The name in the wire tables, where the code point is known.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $( Self::$konst => Some(stringify!($konst)), )+
                    _ => None,
                }
            }
        }

        /// The body of a packet, by kind.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Body<'a> {
            $( $(#[$doc])* $variant($variant $(<$life>)?), )+
            /// A code point that this version does not know.
            Unknown(Unknown<'a>),
        }

        impl<'a> Body<'a> {
            pub(crate) fn read(input: &'a [u8], cbh: &Cbh) -> Result<Self, Error> {
                match cbh.opcode {
                    $( Opcode::$konst => $variant::read_body(input, cbh).map(Self::$variant), )+
                    _ => Unknown::read_body(input, cbh).map(Self::Unknown),
                }
            }

            /// [`Self::read`] and [`Self::check`] in one. It checks a body before it becomes one of many: moving the
            /// sum of all of them about costs more than reading it.
            #[inline]
            pub(crate) fn read_checked(input: &'a [u8], cbh: &Cbh) -> Result<Self, Error> {
                match cbh.opcode {
                    $( Opcode::$konst => {
                        let body = $variant::read_body(input, cbh)?;
                        body.check(cbh)?;
                        Ok(Self::$variant(body))
                    } )+
                    _ => {
                        let body = Unknown::read_body(input, cbh)?;
                        body.check(cbh)?;
                        Ok(Self::Unknown(body))
                    }
                }
            }

            pub(crate) fn check(&self, cbh: &Cbh) -> Result<(), Error> {
                match self {
                    $( Self::$variant(body) => body.check(cbh), )+
                    Self::Unknown(body) => body.check(cbh),
                }
            }

            pub(crate) fn put(&self, out: &mut Writer<'_>) {
                match self {
                    $( Self::$variant(body) => body.put_body(out), )+
                    Self::Unknown(body) => body.put_body(out),
                }
            }

            pub(crate) fn visit(&self, f: &mut Visitor<'_>) {
                match self {
                    $( Self::$variant(body) => body.visit_body(f), )+
                    Self::Unknown(body) => body.visit_body(f),
                }
            }

            /// The payload, on a data packet.
            pub fn payload(&self) -> Option<&'a [u8]> {
                match self {
                    $( Self::$variant(body) => body.payload(), )+
                    Self::Unknown(body) => body.payload(),
                }
            }

            pub(crate) fn len(&self) -> usize {
                match self {
                    $( Self::$variant(body) => body.body_len(), )+
                    Self::Unknown(body) => body.body_len(),
                }
            }
        }
    };
}

packets! {
    /// Two-sided message into a posted receive.
    0x01 SEND Send<'a>,
    /// Two-sided message with immediate data.
    0x02 SEND_IMM SendImm<'a>,
    /// Two-sided message that invalidates a key at its receiver.
    0x03 SEND_INV SendInv<'a>,
    /// One-sided write to a remote address.
    0x04 WRITE Write<'a>,
    /// One-sided write with immediate data, which consumes a receive.
    0x05 WRITE_IMM WriteImm<'a>,
    /// Asks for the bytes at a remote address.
    0x06 READ_REQ ReadReq,
    /// Compares 8 remote bytes and swaps them.
    0x07 CMP_SWAP CmpSwap,
    /// Adds to 8 remote bytes.
    0x08 FETCH_ADD FetchAdd,
    /// Takes a PSN and carries nothing.
    0x09 FILL Fill,
    /// Answer to READ_REQ.
    0x20 READ_RESP ReadResp<'a>,
    /// Answer to an atomic request.
    0x21 ATOMIC_RESP AtomicResp,
    /// Acknowledgment without a gap.
    0x40 ACK Ack,
    /// Acknowledgment with the 256-bit vector.
    0x41 ACK_SACK AckSack,
    /// Refusal of a packet.
    0x42 NAK Nak,
    /// First packet of a connection.
    0x60 OPEN Open<'a>,
    /// Answer to OPEN, with a cookie.
    0x61 ACCEPT Accept<'a>,
    /// Refusal of OPEN or CONFIRM.
    0x62 REJECT Reject,
    /// Echo of the cookie; the acceptor keeps state from here on.
    0x63 CONFIRM Confirm<'a>,
    /// End of new requests.
    0x64 CLOSE Close,
    /// Answer to CLOSE.
    0x65 CLOSE_ACK CloseAck,
    /// Answer to CONFIRM; data may follow.
    0x66 CONFIRM_ACK ConfirmAck,
    /// Asks what has arrived on a path.
    0x68 PATH_PROBE PathProbe,
    /// Answer to PATH_PROBE.
    0x69 PATH_PROBE_ACK PathProbeAck,
    /// Tells that a path has taken another route.
    0x6a PATH_CHANGE PathChange,
    /// Gives up a path at its epoch.
    0x6b PATH_RETIRE PathRetire,
    /// Answer to PATH_RETIRE.
    0x6c PATH_RETIRED PathRetired,
    /// A rate hint by itself.
    0x6d RATE_HINT RateHint,
    /// Asks for, or tells, how many receives are posted.
    0x6e RQ_CREDIT RqCredit,
    /// Ends a stream.
    0x6f STREAM_RESET StreamReset,
    /// Answer to STREAM_RESET.
    0x70 STREAM_RESET_ACK StreamResetAck,
    /// Opens a stream.
    0x72 STREAM_OPEN StreamOpen,
    /// Answer to STREAM_OPEN.
    0x73 STREAM_OPEN_ACK StreamOpenAck,
}

impl Opcode {
    /// Whether packets of this kind take a PSN and carry a message: the range 0x01 to 0x3f.
    pub const fn is_data(self) -> bool {
        self.0 >= 0x01 && self.0 <= 0x3f
    }

    /// Whether messages of this kind consume a posted receive, whose number each of their packets has.
    pub const fn consumes_receive(self) -> bool {
        matches!(
            self,
            Self::SEND | Self::SEND_IMM | Self::SEND_INV | Self::WRITE_IMM
        )
    }

    /// Whether messages of this kind answer one of the other side, whose stream and number they have.
    pub const fn is_response(self) -> bool {
        matches!(self, Self::READ_RESP | Self::ATOMIC_RESP)
    }

    /// Whether this is an acknowledgment, with or without the vector.
    pub const fn is_ack(self) -> bool {
        matches!(self, Self::ACK | Self::ACK_SACK)
    }

    /// Whether packets of this kind are about one path, which their base header names with its epoch: all that is not
    /// control, and of control what probes, changes and retires paths.
    pub const fn names_path(self) -> bool {
        !self.is_control()
            || matches!(
                self,
                Self::PATH_PROBE
                    | Self::PATH_PROBE_ACK
                    | Self::PATH_CHANGE
                    | Self::PATH_RETIRE
                    | Self::PATH_RETIRED
            )
    }

    /// Whether this is control, request or response: the range 0x60 to 0x7f.
    pub const fn is_control(self) -> bool {
        self.0 >= 0x60 && self.0 <= 0x7f
    }

    /// Whether packets of this kind look the same in every version.
    pub const fn is_version_independent(self) -> bool {
        matches!(self, Self::OPEN | Self::REJECT)
    }
}

impl Body<'_> {
    /// The message header, on a data packet.
    pub fn msgh(&self) -> Option<&Msgh> {
        match self {
            Self::Send(body) => Some(&body.msgh),
            Self::SendImm(body) => Some(&body.msgh),
            Self::SendInv(body) => Some(&body.msgh),
            Self::Write(body) => Some(&body.msgh),
            Self::WriteImm(body) => Some(&body.msgh),
            Self::ReadReq(body) => Some(&body.msgh),
            Self::CmpSwap(body) => Some(&body.msgh),
            Self::FetchAdd(body) => Some(&body.msgh),
            Self::Fill(body) => Some(&body.msgh),
            Self::ReadResp(body) => Some(&body.msgh),
            Self::AtomicResp(body) => Some(&body.msgh),
            _ => None,
        }
    }

    /// The tagged placement header, on a data packet that has one.
    pub fn tagh(&self) -> Option<&Tagh> {
        match self {
            Self::Write(body) => Some(&body.tagh),
            Self::WriteImm(body) => Some(&body.tagh),
            Self::ReadReq(body) => Some(&body.tagh),
            Self::CmpSwap(body) => Some(&body.tagh),
            Self::FetchAdd(body) => Some(&body.tagh),
            _ => None,
        }
    }
}

/// Makes a packet of a fixed header: nothing follows it before the trailer.
macro_rules! fixed_body {
    ($name:ident $(<$life:lifetime>)?, |$body:ident, $cbh:ident| $check:block) => {
        impl<'a> super::PacketBody<'a> for $name $(<$life>)? {
            fn read_body(input: &'a [u8], _: &$crate::metaroce::Cbh) -> Result<Self, $crate::Error> {
                let (body, rest) = Self::read(input, $crate::metaroce::Cbh::LEN)?;
                super::end(rest, Self::LAYER, $crate::metaroce::Cbh::LEN + Self::LEN)?;
                Ok(body)
            }
            fn check(&self, $cbh: &$crate::metaroce::Cbh) -> Result<(), $crate::Error> {
                let $body = self;
                $check
                $body.check_reserved()
            }
            fn put_body(&self, out: &mut $crate::metaroce::field::Writer<'_>) {
                self.put(out);
            }
            fn visit_body(&self, f: &mut $crate::metaroce::Visitor<'_>) {
                self.visit(f);
            }
            fn body_len(&self) -> usize {
                Self::LEN
            }
        }
    };
}
use fixed_body;

/// Makes a data packet of its headers in wire order, with payload behind them or without. The struct has a field for
/// each of them.
macro_rules! message_body {
    ($name:ident<$life:lifetime>, [$($header:ident: $type:ident),+], payload, |$body:ident, $cbh:ident| $check:expr) => {
        impl $name<'_> {
            /// Bytes of headers behind the base header.
            pub const HEADERS: usize = 0 $( + $type::LEN )+;
        }

        impl<$life> super::PacketBody<$life> for $name<$life> {
            #[inline]
            fn read_body(input: &$life [u8], cbh: &$crate::metaroce::Cbh) -> Result<Self, $crate::Error> {
                super::message_body!(@read input, rest, end, [$($header: $type),+]);
                let payload = $crate::metaroce::messages::payload_of(rest, cbh, end.0)?;
                Ok(Self { $($header,)+ payload })
            }
            #[inline]
            fn check(&self, $cbh: &$crate::metaroce::Cbh) -> Result<(), $crate::Error> {
                let $body = self;
                $check
            }
            fn put_body(&self, out: &mut $crate::metaroce::field::Writer<'_>) {
                $( self.$header.put(out); )+
                out.put(self.payload);
            }
            fn visit_body(&self, f: &mut $crate::metaroce::Visitor<'_>) {
                $( self.$header.visit(f); )+
                f("payload", "payload", $crate::metaroce::Value::Bytes(self.payload));
            }
            fn payload(&self) -> Option<&$life [u8]> {
                Some(self.payload)
            }
            fn body_len(&self) -> usize {
                Self::HEADERS + self.payload.len()
            }
        }
    };
    ($name:ident, [$($header:ident: $type:ident),+], |$body:ident, $cbh:ident| $check:expr) => {
        impl $name {
            /// Bytes of headers behind the base header.
            pub const HEADERS: usize = 0 $( + $type::LEN )+;
        }

        impl<'a> super::PacketBody<'a> for $name {
            fn read_body(input: &'a [u8], _: &$crate::metaroce::Cbh) -> Result<Self, $crate::Error> {
                super::message_body!(@read input, rest, end, [$($header: $type),+]);
                super::end(rest, end.1, end.0)?;
                Ok(Self { $($header,)+ })
            }
            fn check(&self, $cbh: &$crate::metaroce::Cbh) -> Result<(), $crate::Error> {
                let $body = self;
                $check
            }
            fn put_body(&self, out: &mut $crate::metaroce::field::Writer<'_>) {
                $( self.$header.put(out); )+
            }
            fn visit_body(&self, f: &mut $crate::metaroce::Visitor<'_>) {
                $( self.$header.visit(f); )+
            }
            fn body_len(&self) -> usize {
                Self::HEADERS
            }
        }
    };
    // The headers one after the other; then what is left, and where the last header ends with its name.
    (@read $input:ident, $rest:ident, $end:ident, [$($header:ident: $type:ident),+]) => {
        let ($rest, $end) = ($input, ($crate::metaroce::Cbh::LEN, $crate::metaroce::Cbh::LAYER));
        $(
            let ($header, $rest) = $type::read($rest, $end.0)?;
            let $end = ($end.0 + $type::LEN, $type::LAYER);
        )+
    };
}
use message_body;

/// Refuses bytes behind a body of fixed length.
pub(crate) fn end(rest: &[u8], layer: &'static str, offset: usize) -> Result<(), Error> {
    if rest.is_empty() {
        Ok(())
    } else {
        Err(Error::Long {
            layer,
            offset,
            extra: rest.len(),
        })
    }
}

/// Refuses `found` unless `allowed`.
#[inline]
pub(crate) fn rule(
    allowed: bool,
    layer: &'static str,
    field: &'static str,
    found: u64,
    rule: &'static str,
) -> Result<(), Error> {
    if allowed {
        Ok(())
    } else {
        Err(Error::Value {
            layer,
            field,
            found,
            rule,
        })
    }
}

/// What a field with limits of its own in the wire tables must keep.
pub(crate) const LIMIT: &str = "the field keeps the limits of its table";

/// The rules that every control packet without a path keeps.
#[inline]
pub(crate) fn check_control(cbh: &Cbh) -> Result<(), Error> {
    check_unpadded(cbh)?;
    rule(
        cbh.path == 0,
        "CBH",
        "path",
        u64::from(cbh.path),
        "control names no path",
    )?;
    rule(
        cbh.epoch == 0,
        "CBH",
        "epoch",
        u64::from(cbh.epoch),
        "control names no epoch",
    )
}

/// Only data packets carry padding.
#[inline]
pub(crate) fn check_unpadded(cbh: &Cbh) -> Result<(), Error> {
    rule(
        cbh.pad == 0,
        "CBH",
        "pad",
        u64::from(cbh.pad),
        "only payload is padded",
    )
}
