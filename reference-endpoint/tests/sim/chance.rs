//! Seeded chance, and the bytes of a payload.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// A stream of random numbers. Each use has its own, so that one does not change the choices of another.
pub struct Chance(ChaCha8Rng);

impl Chance {
    pub fn new(seed: u64, of_what: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(mix(seed ^ mix(of_what))))
    }

    /// A number below `end`; 0 if there is none.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end.max(1)
    }

    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    pub fn in_thousand(&mut self, chance: u32) -> bool {
        self.below(1000) < u64::from(chance)
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// A length: mostly around the ends of packets, sometimes long.
    pub fn length(&mut self, payload: usize, most: usize) -> usize {
        let around = |chance: &mut Self, packets: u64| {
            let packets = chance.below(packets) as usize;
            (packets * payload + chance.below(5) as usize).saturating_sub(2)
        };
        let len = match self.below(10) {
            0 => self.below(4) as usize,
            1..=4 => around(self, 4),
            5..=7 => around(self, 24),
            8 => self.below(3 * payload as u64) as usize,
            _ => self.below(most as u64 + 1) as usize,
        };
        len.min(most)
    }
}

/// A permutation of 64-bit numbers in which every bit matters.
pub fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 31)).wrapping_mul(0x9e6f_9d3a_c3b1_27d5);
    let x = (x ^ (x >> 29)).wrapping_mul(0xd3c5_4a1b_86e2_90f7);
    x ^ (x >> 32)
}

/// Fills `out` with the bytes from `shift` on of the payload that `key` names.
pub fn payload(key: u64, shift: usize, out: &mut [u8]) {
    let mut at = shift;
    let mut rest = out;
    while !rest.is_empty() {
        let word =
            mix(key.wrapping_add((at as u64 / 8).wrapping_mul(0x1_0000_0001_9e37))).to_le_bytes();
        let word = &word[at % 8..];
        let n = word.len().min(rest.len());
        let (head, tail) = rest.split_at_mut(n);
        head.copy_from_slice(&word[..n]);
        at += n;
        rest = tail;
    }
}

pub fn payload_of(key: u64, shift: usize, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    payload(key, shift, &mut out);
    out
}
