//! What messages carry and memory holds: bytes that name their message and place, and digests to compare them by.

use sha2::{Digest, Sha256};

/// Value of every byte that no message is meant to reach.
pub const FILL: u8 = 0xee;

/// Byte `i` of the message that `seed` names: no two messages look alike, and no two words of one.
pub fn pattern(seed: u64, i: u64) -> u8 {
    let mut word =
        (seed ^ (i / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ (word >> 31)).to_le_bytes()[(i % 8) as usize]
}

/// Lower-case hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
            // Writing to a String cannot fail.
            let _infallible = write!(out, "{byte:02x}");
            out
        })
}

/// SHA-256 in hex.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
