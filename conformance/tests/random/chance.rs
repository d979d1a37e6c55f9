//! Seeded chance.

use std::fmt::Display;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// A stream of random numbers. Each part of a scenario has its own, so that one does not change the choices of another.
pub struct Chance(ChaCha8Rng);

impl Chance {
    /// The stream for `what` under a seed.
    pub fn new(seed: u64, what: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(what);
        Self(rng)
    }

    /// A number below `end`; 0 if there is none.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end.max(1)
    }

    /// A number from `least` to `most`.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True in `percent` of 100 cases.
    pub fn is(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// One of several, as text.
    pub fn word<T: Copy + Display>(&mut self, of: &[T]) -> String {
        self.pick(of).to_string()
    }

    /// A range of numbers below `end` for a rule, such as `"3..8"`.
    pub fn range(&mut self, end: u64, longest: u64) -> String {
        let first = self.below(end);
        format!("\"{first}..{}\"", first + self.below(longest))
    }

    /// A share of packets up to `most` tenths of a percent, such as `3.5%`.
    pub fn share(&mut self, most: u64) -> String {
        let tenths = self.between(1, most);
        format!("{}.{}%", tenths / 10, tenths % 10)
    }
}
