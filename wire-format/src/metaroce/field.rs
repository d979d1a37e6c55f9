//! Fields of fixed width, and the macro that makes a header of them.

use core::convert::identity;

use nom::bytes::complete::take;

use crate::serial::{Msn, Psn, Rqsn};
use crate::{EmitError, Error};

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

/// A field that knows its width. It may borrow from the bytes that it is read from.
pub(crate) trait Field<'a>: Sized {
    /// Bytes on the wire.
    const LEN: usize;
    /// Reads the field. `bytes` are exactly its own: a header is split off as a whole before its fields are read, so
    /// that one check of the length serves all of them.
    fn load(bytes: &'a [u8]) -> Self;
    fn put(&self, out: &mut Writer<'_>);
    fn visit(&self, layer: &'static str, name: &'static str, f: &mut Visitor<'_>);
    /// What a reserved field holds that it should not: the number, or the first byte that is not zero. 0 is right.
    fn excess(&self) -> u64;
}

/// The first `N` bytes of `input`, which starts `offset` bytes into the UDP payload, and the rest.
#[inline]
pub(crate) fn split<'a, const N: usize>(
    input: &'a [u8],
    layer: &'static str,
    offset: usize,
) -> Result<(&'a [u8; N], &'a [u8]), Error> {
    let parsed: nom::IResult<&[u8], &[u8]> = take(N)(input);
    // As an array, the compiler knows how long it is and drops the checks at the single fields.
    let head = parsed
        .ok()
        .and_then(|(rest, head)| Some((head.first_chunk()?, rest)));
    head.ok_or(Error::Short {
        layer,
        offset,
        needed: N,
        available: input.len(),
    })
}

macro_rules! number_field {
    ($type:ty, $len:literal, $raw:ty, $from:expr, $to:expr) => {
        impl Field<'_> for $type {
            const LEN: usize = $len;
            #[inline]
            fn load(bytes: &[u8]) -> Self {
                let mut wide = [0; 8];
                wide[8 - $len..].copy_from_slice(bytes);
                // The width is that of the field: the cast drops nothing.
                $from(u64::from_be_bytes(wide) as $raw)
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

number_field!(u8, 1, u8, identity, identity);
number_field!(u16, 2, u16, identity, identity);
number_field!(U24, 3, u32, U24::new, U24::value);
number_field!(u32, 4, u32, identity, identity);
number_field!(u64, 8, u64, identity, identity);
number_field!(Psn, 4, u32, Psn::new, Psn::value);
number_field!(Msn, 3, u32, Msn::new, Msn::value);
number_field!(Rqsn, 2, u16, Rqsn::new, Rqsn::value);

impl<const N: usize> Field<'_> for [u8; N] {
    const LEN: usize = N;
    #[inline]
    fn load(bytes: &[u8]) -> Self {
        let mut out = [0; N];
        out.copy_from_slice(bytes);
        out
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

/// Makes a field of a type that wraps a number: a code point, or a set of flags.
macro_rules! wrapped_field {
    ($type:ident, $raw:ty) => {
        impl $crate::metaroce::field::Field<'_> for $type {
            const LEN: usize = <$raw as $crate::metaroce::field::Field<'_>>::LEN;
            #[inline]
            fn load(bytes: &[u8]) -> Self {
                Self($crate::metaroce::field::Field::load(bytes))
            }
            fn put(&self, out: &mut $crate::metaroce::field::Writer<'_>) {
                $crate::metaroce::field::Field::put(&self.0, out);
            }
            fn visit(
                &self,
                layer: &'static str,
                name: &'static str,
                f: &mut $crate::metaroce::Visitor<'_>,
            ) {
                $crate::metaroce::field::Field::visit(&self.0, layer, name, f);
            }
            fn excess(&self) -> u64 {
                u64::from(self.0)
            }
        }
    };
}
pub(crate) use wrapped_field;

/// Makes a type of a set of flags: its constants, and how to ask for them.
macro_rules! flag_set {
    (
        $(#[$doc:meta])*
        pub struct $name:ident($raw:ty) reserved $reserved:literal {
            $( $(#[$fdoc:meta])* $flag:ident = $bit:literal ),+ $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub $raw);

        impl $name {
            $( $(#[$fdoc])* pub const $flag: Self = Self($bit); )+
            /// Bits that are zero in this version.
            pub const RESERVED: Self = Self($reserved);

            /// Every flag of this version with its name in the wire tables.
            pub const ALL: &'static [(&'static str, Self)] = &[ $( (stringify!($flag), Self::$flag) ),+ ];

            /// Whether any bit of `other` is set.
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            /// These flags and those of `other`.
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// These flags less those of `other`.
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }

        $crate::metaroce::field::wrapped_field!($name, $raw);
    };
}
pub(crate) use flag_set;

/// Makes a type of a space of code points. Unknown ones stay representable.
macro_rules! code_space {
    (
        $(#[$doc:meta])*
        pub struct $name:ident($raw:ty) {
            $( $(#[$cdoc:meta])* $konst:ident = $code:literal ),+ $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(pub $raw);

        impl $name {
            $( $(#[$cdoc])* pub const $konst: Self = Self($code); )+

            /// Every code point of this version with its name in the wire tables.
            pub const ALL: &'static [(&'static str, Self)] = &[ $( (stringify!($konst), Self::$konst) ),+ ];
        }

        $crate::metaroce::field::wrapped_field!($name, $raw);
    };
}
pub(crate) use code_space;

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
        pub struct $name:ident $(<$life:lifetime>)?, $layer:literal {
            $( $(#[$fdoc:meta])* $field:ident : $type:ty $(= $zero:literal)? ),+ $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name $(<$life>)? {
            $( $(#[$fdoc])* pub $field: $type, )+
        }

        impl $(<$life>)? $name $(<$life>)? {
            /// Bytes on the wire.
            pub const LEN: usize = 0 $( + <$type as $crate::metaroce::field::Field<'_>>::LEN )+;
            /// Name of the header in the wire tables.
            pub const LAYER: &'static str = $layer;

            /// Reads the header from the front of `input`, which starts `offset` bytes into the UDP payload.
            ///
            /// # Errors
            /// [`Error::Short`](crate::Error::Short) when `input` is shorter than the header.
            #[inline]
            pub fn read(input: & $($life)? [u8], offset: usize) -> Result<(Self, & $($life)? [u8]), $crate::Error> {
                let (head, rest) = $crate::metaroce::field::split::<{ $name::LEN }>(input, $layer, offset)?;
                Ok((Self::load_all(head), rest))
            }

            #[inline]
            fn load_all(bytes: & $($life)? [u8]) -> Self {
                let mut at = 0;
                $(
                    let end = at + <$type as $crate::metaroce::field::Field<'_>>::LEN;
                    let $field = <$type as $crate::metaroce::field::Field<'_>>::load(&bytes[at..end]);
                    at = end;
                )+
                debug_assert_eq!(at, Self::LEN);
                Self { $($field),+ }
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
