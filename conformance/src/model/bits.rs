//! A set of numbers.

use std::collections::BTreeMap;

/// A set of numbers, in one bit each, where any number near it is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bits {
    words: BTreeMap<u32, u64>,
    count: u32,
}

impl Bits {
    /// Adds a number; tells whether it is new.
    pub fn insert(&mut self, n: u32) -> bool {
        let bit = 1u64 << (n % 64);
        let word = self.words.entry(n / 64).or_default();
        let new = *word & bit == 0;
        *word |= bit;
        self.count += u32::from(new);
        new
    }

    /// Whether the number is in the set.
    pub fn contains(&self, n: u32) -> bool {
        let word = self.words.get(&(n / 64));
        word.is_some_and(|word| word & (1 << (n % 64)) != 0)
    }

    /// How many numbers there are.
    pub fn len(&self) -> u32 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_each_number_once() {
        let mut bits = Bits::default();
        assert!(bits.insert(3) && bits.insert(64) && !bits.insert(3));
        assert_eq!(bits.len(), 2);
        assert!(bits.insert(u32::MAX) && bits.contains(u32::MAX));
        assert!(bits.contains(64) && !bits.contains(65) && !bits.contains(1000));
    }
}
