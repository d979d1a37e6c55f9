//! ACK_SACK: an acknowledgment with the vector of what has arrived behind a gap.

use super::{PacketBody, ack, end, rule};
use crate::Error;
use crate::metaroce::field::{Field, Value, Visitor, Writer, split};
use crate::metaroce::headers::{AckHeader, Cbh};
use crate::serial::Psn;

/// The 256-bit selective acknowledgment: bit `i`, most significant first, stands for cumulative PSN + 1 + i.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sack(pub [u8; 32]);

impl Sack {
    /// Bits of the vector, and so packets in flight per path.
    pub const BITS: u32 = 256;
    /// Nothing behind a gap.
    pub const EMPTY: Self = Self([0; 32]);

    /// Whether bit `i` is set; false from 256 on.
    pub fn bit(&self, i: u32) -> bool {
        self.0
            .get(i as usize / 8)
            .is_some_and(|byte| byte & (0x80 >> (i % 8)) != 0)
    }

    /// Sets bit `i`; nothing from 256 on.
    pub fn set(&mut self, i: u32) {
        if let Some(byte) = self.0.get_mut(i as usize / 8) {
            *byte |= 0x80 >> (i % 8);
        }
    }

    /// Whether no bit is set.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&byte| byte == 0)
    }

    /// Whether the vector, over the cumulative PSN `cum`, says that `psn` has arrived.
    pub fn contains(&self, cum: Psn, psn: Psn) -> bool {
        let ahead = psn.distance_from(cum);
        ahead > 0 && self.bit(ahead - 1)
    }

    /// The bits that are set, lowest first.
    pub fn ones(&self) -> impl Iterator<Item = u32> + '_ {
        (0..Self::BITS).filter(|&i| self.bit(i))
    }

    /// Bit 0 is zero: were it set, the cumulative PSN would be higher.
    #[inline]
    pub(super) fn check(&self, layer: &'static str) -> Result<(), Error> {
        rule(
            !self.bit(0),
            layer,
            "sack",
            1,
            "bit 0 of the vector is zero",
        )
    }

    /// The highest bit that is set.
    pub fn highest(&self) -> Option<u32> {
        let (index, byte) = self
            .0
            .iter()
            .enumerate()
            .rev()
            .find(|(_, byte)| **byte != 0)?;
        Some(index as u32 * 8 + 7 - byte.trailing_zeros())
    }
}

impl Field<'_> for Sack {
    const LEN: usize = 32;
    fn load(bytes: &[u8]) -> Self {
        Self(Field::load(bytes))
    }
    fn put(&self, out: &mut Writer<'_>) {
        out.put(&self.0);
    }
    fn visit(&self, layer: &'static str, name: &'static str, f: &mut Visitor<'_>) {
        f(layer, name, Value::Bytes(&self.0));
    }
    fn excess(&self) -> u64 {
        self.0.excess()
    }
}

/// An ACK_SACK packet. The base header's PSN is the highest with none missing up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckSack {
    /// Counters, echo, hint and credit.
    pub header: AckHeader,
    /// What has arrived behind the gap. Bit 0 is zero: were it set, the cumulative PSN would be higher.
    pub sack: Sack,
}

impl<'a> PacketBody<'a> for AckSack {
    fn read_body(input: &'a [u8], _: &Cbh) -> Result<Self, Error> {
        let (header, rest) = AckHeader::read(input, Cbh::LEN)?;
        let at = Cbh::LEN + AckHeader::LEN;
        let (bits, rest) = split::<{ Sack::LEN }>(rest, "ACK_SACK", at)?;
        let sack = Sack::load(bits);
        end(rest, "ACK_SACK", at + Sack::LEN)?;
        Ok(Self { header, sack })
    }
    fn check(&self, cbh: &Cbh) -> Result<(), Error> {
        ack::check(cbh, &self.header)?;
        self.sack.check("ACK_SACK")
    }
    fn put_body(&self, out: &mut Writer<'_>) {
        self.header.put(out);
        self.sack.put(out);
    }
    fn visit_body(&self, f: &mut Visitor<'_>) {
        self.header.visit(f);
        f("ACK_SACK", "sack", Value::Bytes(&self.sack.0));
    }
    fn body_len(&self) -> usize {
        AckHeader::LEN + Sack::LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bit_zero_is_the_most_significant() {
        let mut sack = Sack::EMPTY;
        sack.set(1);
        assert_eq!(sack.0[0], 0x40);
        sack.set(255);
        assert_eq!(sack.0[31], 0x01);
        sack.set(256);
        assert_eq!(sack.ones().count(), 2);
        assert_eq!(sack.highest(), Some(255));
        assert!(sack.contains(Psn::new(0xffff_ffff), Psn::new(1)));
        assert!(!sack.contains(Psn::new(5), Psn::new(5)));
    }

    proptest! {
        #[test]
        fn ones_are_what_was_set(mut bits in proptest::collection::vec(0u32..256, 0..40)) {
            let mut sack = Sack::EMPTY;
            bits.iter().for_each(|&i| sack.set(i));
            bits.sort_unstable();
            bits.dedup();
            prop_assert_eq!(sack.highest(), bits.last().copied());
            prop_assert_eq!(sack.ones().collect::<std::vec::Vec<_>>(), bits);
        }
    }
}
