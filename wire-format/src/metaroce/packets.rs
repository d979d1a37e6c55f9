//! The packet types: one file each, and the one list of them.

mod accept;
mod ack;
mod ack_sack;
mod close;
mod close_ack;
mod confirm;
mod confirm_ack;
mod nak;
mod open;
mod path_probe;
mod path_probe_ack;
mod reject;
mod rq_credit;
mod send;
mod stream_open;
mod stream_open_ack;
mod unknown;
mod write;

pub use accept::Accept;
pub use ack::{Ack, AckFlags};
pub use ack_sack::{AckSack, Sack};
pub use close::Close;
pub use close_ack::CloseAck;
pub use confirm::Confirm;
pub use confirm_ack::ConfirmAck;
pub use nak::{Nak, NakCode, NakScope};
pub use open::Open;
pub use path_probe::PathProbe;
pub use path_probe_ack::PathProbeAck;
pub use reject::{Reject, RejectReason};
pub use rq_credit::RqCredit;
pub use send::Send;
pub use stream_open::StreamOpen;
pub use stream_open_ack::StreamOpenAck;
pub use unknown::Unknown;
pub use write::Write;

use super::field::{Visitor, Writer};
use super::headers::Cbh;
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
    /// One-sided write to a remote address.
    0x04 WRITE Write<'a>,
    /// Acknowledgment without a gap.
    0x40 ACK Ack,
    /// Acknowledgment with the 256-bit vector.
    0x41 ACK_SACK AckSack,
    /// Refusal of a packet.
    0x42 NAK Nak,
    /// First packet of a connection.
    0x60 OPEN Open,
    /// Answer to OPEN, with a cookie.
    0x61 ACCEPT Accept,
    /// Refusal of OPEN or CONFIRM.
    0x62 REJECT Reject,
    /// Echo of the cookie; the acceptor keeps state from here on.
    0x63 CONFIRM Confirm,
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
    /// Asks for, or tells, how many receives are posted.
    0x6e RQ_CREDIT RqCredit,
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

    /// Whether this is an acknowledgment, with or without the vector.
    pub const fn is_ack(self) -> bool {
        matches!(self, Self::ACK | Self::ACK_SACK)
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

/// Makes a packet of a fixed header: nothing follows it before the trailer.
macro_rules! fixed_body {
    ($name:ident, |$body:ident, $cbh:ident| $check:block) => {
        impl<'a> super::PacketBody<'a> for $name {
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
