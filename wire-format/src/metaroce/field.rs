//! Fields of fixed width, and the macro that makes a header of them.

use nom::IResult;
use nom::bytes::complete::take;
use nom::number::complete::{be_u8, be_u16, be_u24, be_u32, be_u64};

use crate::EmitError;
use crate::serial::{Msn, Psn, Rqsn};

/// An unsigned number of 24 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct U24(u32);

impl U24 {
    /// Takes the low 24 bits of `value`; the rest is dropped.
    pub const fn new(value: u32) -> Self {
        Self(value & 0x00ff_ffff)
    }

    /// The number.
    pub const fn value(self) -> u32 {
        self.0
    }
}

/// The value of a field, for tools that show or compare packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'v> {
    /// A number, right-aligned.
    Int(u64),
    /// Bytes as they stand on the wire.
    Bytes(&'v [u8]),
}

/// Receives header name, field name and value, in the order of the wire.
pub type Visitor<'f> = dyn FnMut(&'static str, &'static str, Value<'_>) + 'f;

/// A field that knows its width.
pub(crate) trait Field: Sized {
    /// Bytes on the wire.
    const LEN: usize;
    fn take(input: &[u8]) -> IResult<&[u8], Self>;
    fn put(&self, out: &mut Writer<'_>);
    fn visit(&self, layer: &'static str, name: &'static str, f: &mut Visitor<'_>);
    /// What a reserved field holds that it should not: the number, or the first byte that is not zero. 0 is right.
    fn excess(&self) -> u64;
}

macro_rules! number_field {
    ($type:ty, $len:expr, $parser:ident, $from:expr, $to:expr) => {
        impl Field for $type {
            const LEN: usize = $len;
            fn take(input: &[u8]) -> IResult<&[u8], Self> {
                $parser(input).map(|(rest, raw)| (rest, $from(raw)))
            }
            fn put(&self, out: &mut Writer<'_>) {
                let wide = u64::from($to(*self)).to_be_bytes();
                out.put(&wide[8 - $len..]);
            }
            fn visit(&self, layer: &'static str, name: &'static str, f: &mut Visitor<'_>) {
                f(layer, name, Value::Int(u64::from($to(*self))));
            }
            fn excess(&self) -> u64 {
                u64::from($to(*self))
            }
        }
    };
}

number_field!(
    u8,
    1,
    be_u8,
    core::convert::identity,
    core::convert::identity
);
number_field!(
    u16,
    2,
    be_u16,
    core::convert::identity,
    core::convert::identity
);
number_field!(U24, 3, be_u24, U24::new, U24::value);
number_field!(
    u32,
    4,
    be_u32,
    core::convert::identity,
    core::convert::identity
);
number_field!(
    u64,
    8,
    be_u64,
    core::convert::identity,
    core::convert::identity
);
number_field!(Psn, 4, be_u32, Psn::new, Psn::value);
number_field!(Msn, 3, be_u24, Msn::new, Msn::value);
number_field!(Rqsn, 2, be_u16, Rqsn::new, Rqsn::value);

impl<const N: usize> Field for [u8; N] {
    const LEN: usize = N;
    fn take(input: &[u8]) -> IResult<&[u8], Self> {
        let (rest, bytes) = take(N)(input)?;
        let mut out = [0; N];
        out.copy_from_slice(bytes);
        Ok((rest, out))
    }
    fn put(&self, out: &mut Writer<'_>) {
        out.put(self);
    }
    fn visit(&self, layer: &'static str, name: &'static str, f: &mut Visitor<'_>) {
        f(layer, name, Value::Bytes(self));
    }
    fn excess(&self) -> u64 {
        self.iter().find(|&&b| b != 0).map_or(0, |&b| u64::from(b))
    }
}

/// Writes into a caller's buffer and remembers when it was too small, so that emitters need no check per field.
pub(crate) struct Writer<'o> {
    out: &'o mut [u8],
    at: usize,
}

impl<'o> Writer<'o> {
    pub(crate) fn new(out: &'o mut [u8]) -> Self {
        Self { out, at: 0 }
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        let end = self.at + bytes.len();
        if let Some(room) = self.out.get_mut(self.at..end) {
            room.copy_from_slice(bytes);
        }
        self.at = end;
    }

    /// Bytes written, or how many there would have been.
    pub(crate) fn finish(self) -> Result<usize, EmitError> {
        if self.at <= self.out.len() {
            Ok(self.at)
        } else {
            Err(EmitError::NoRoom {
                needed: self.at,
                available: self.out.len(),
            })
        }
    }
}

/// Makes a header of fields in wire order: the struct, its length, parser, emitter and visitor.
///
/// A field marked `= 0` is reserved: kept as read, and refused by `check_reserved` unless zero.
macro_rules! header {
    (
        $(#[$doc:meta])*
        pub struct $name:ident, $layer:literal {
            $( $(#[$fdoc:meta])* $field:ident : $type:ty $(= $zero:literal)? ),+ $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$fdoc])* pub $field: $type, )+
        }

        impl $name {
            /// Bytes on the wire.
            pub const LEN: usize = 0 $( + <$type as $crate::metaroce::field::Field>::LEN )+;
            /// Name of the header in the wire tables.
            pub const LAYER: &'static str = $layer;

            /// Reads the header from the front of `input`, which starts `offset` bytes into the UDP payload.
            ///
            /// # Errors
            /// [`Error::Short`](crate::Error::Short) when `input` is shorter than the header.
            pub fn read(input: &[u8], offset: usize) -> Result<(Self, &[u8]), $crate::Error> {
                let parsed = (|| -> nom::IResult<&[u8], Self> {
                    let rest = input;
                    $( let (rest, $field) = <$type as $crate::metaroce::field::Field>::take(rest)?; )+
                    Ok((rest, Self { $($field),+ }))
                })();
                parsed.map(|(rest, header)| (header, rest)).map_err(|_| $crate::Error::Short {
                    layer: $layer,
                    offset,
                    needed: Self::LEN,
                    available: input.len(),
                })
            }

            pub(crate) fn put(&self, out: &mut $crate::metaroce::field::Writer<'_>) {
                $( $crate::metaroce::field::Field::put(&self.$field, out); )+
            }

            /// Shows every field in wire order under the header's name.
            pub fn visit(&self, f: &mut $crate::metaroce::Visitor<'_>) {
                self.visit_as($layer, f);
            }

            pub(crate) fn visit_as(&self, layer: &'static str, f: &mut $crate::metaroce::Visitor<'_>) {
                $( $crate::metaroce::field::Field::visit(&self.$field, layer, stringify!($field), f); )+
            }

            /// Refuses reserved fields that are not zero.
            ///
            /// # Errors
            /// [`Error::Value`](crate::Error::Value) naming the first such field.
            pub fn check_reserved(&self) -> Result<(), $crate::Error> {
                $( $(
                    let _: u8 = $zero;
                    let found = $crate::metaroce::field::Field::excess(&self.$field);
                    if found != 0 {
                        return Err($crate::Error::Value {
                            layer: $layer, field: stringify!($field), found, rule: "a reserved field is zero",
                        });
                    }
                )? )+
                Ok(())
            }
        }
    };
}
pub(crate) use header;
