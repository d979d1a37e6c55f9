//! Serial numbers: counters that wrap and compare as in RFC 1982.

macro_rules! serial {
    ($(#[$doc:meta])* $name:ident, $int:ty, $bits:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name($int);

        impl $name {
            /// Width on the wire, in bits.
            pub const BITS: u32 = $bits;
            const MASK: $int = (!0) >> (<$int>::BITS - $bits);
            const HALF: $int = 1 << ($bits - 1);

            /// Takes the low bits of `value`; the rest is dropped.
            pub const fn new(value: $int) -> Self {
                Self(value & Self::MASK)
            }

            /// The number as it stands on the wire.
            pub const fn value(self) -> $int {
                self.0
            }

            /// This number moved on by `n`, wrapping.
            pub const fn add(self, n: $int) -> Self {
                Self::new(self.0.wrapping_add(n))
            }

            /// This number moved back by `n`, wrapping.
            pub const fn sub(self, n: $int) -> Self {
                Self::new(self.0.wrapping_sub(n))
            }

            /// How far `self` lies after `earlier`, counted forwards and modulo the width.
            pub const fn distance_from(self, earlier: Self) -> $int {
                self.0.wrapping_sub(earlier.0) & Self::MASK
            }

            /// Whether `self` comes before `other`. Two numbers exactly half the space apart precede each other in
            /// neither direction.
            pub const fn precedes(self, other: Self) -> bool {
                let ahead = other.distance_from(self);
                ahead != 0 && ahead < Self::HALF
            }

            /// Whether `self` is `other` or comes before it.
            pub const fn precedes_or_is(self, other: Self) -> bool {
                self.0 == other.0 || self.precedes(other)
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

serial!(
    /// Packet sequence number, 32 bits, one space per path and direction.
    Psn, u32, 32
);
serial!(
    /// Message sequence number, 24 bits, one space per stream and direction.
    Msn, u32, 24
);
serial!(
    /// Receive queue sequence number, 16 bits: counts the messages of a stream that consume a receive.
    Rqsn, u16, 16
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn compares_across_the_wrap() {
        assert!(Psn::new(0xffff_ffff).precedes(Psn::new(0)));
        assert!(!Psn::new(0).precedes(Psn::new(0xffff_ffff)));
        assert_eq!(Msn::new(0x0100_0001), Msn::new(1));
        assert_eq!(Msn::new(0xff_ffff).add(1), Msn::new(0));
        assert!(Rqsn::new(0xfffe).precedes(Rqsn::new(3)));
        assert_eq!(Msn::new(2).distance_from(Msn::new(0xff_fffe)), 4);
    }

    #[test]
    fn half_the_space_apart_is_unordered() {
        let (a, b) = (Psn::new(0), Psn::new(0x8000_0000));
        assert!(!a.precedes(b) && !b.precedes(a));
        let (a, b) = (Msn::new(1), Msn::new(0x80_0001));
        assert!(!a.precedes(b) && !b.precedes(a));
    }

    proptest! {
        #[test]
        fn adding_a_small_count_orders(base: u32, n in 1u32..0x7fff_ffff) {
            let (a, b) = (Psn::new(base), Psn::new(base).add(n));
            prop_assert!(a.precedes(b) && !b.precedes(a));
            prop_assert_eq!(b.distance_from(a), n);
            prop_assert_eq!(b.sub(n), a);
        }

        #[test]
        fn narrow_numbers_order_too(base: u32, n in 1u32..0x7f_ffff) {
            let (a, b) = (Msn::new(base), Msn::new(base).add(n));
            prop_assert!(a.precedes(b) && !b.precedes(a));
            prop_assert_eq!(b.distance_from(a), n);
        }
    }
}
