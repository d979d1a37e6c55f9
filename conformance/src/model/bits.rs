//! A set of small numbers.

/// A set of numbers from 0 on, in one bit each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bits {
    words: Vec<u64>,
    count: u32,
}

impl Bits {
    /// Adds a number; tells whether it is new.
    pub fn insert(&mut self, n: u32) -> bool {
        let (word, bit) = (n as usize / 64, 1u64 << (n % 64));
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let slot = &mut self.words[word];
        let new = *slot & bit == 0;
        *slot |= bit;
        self.count += u32::from(new);
        new
    }

    /// Whether the number is in the set.
    pub fn contains(&self, n: u32) -> bool {
        self.words
            .get(n as usize / 64)
            .is_some_and(|word| word & (1 << (n % 64)) != 0)
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
        assert!(bits.contains(64) && !bits.contains(65) && !bits.contains(1000));
    }
}
