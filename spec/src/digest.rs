//! Hashes that name a version of the text exactly.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::{CHAPTERS, CODES, DATA, STATES, TABLES};

/// SHA-256, in hex, over everything that this crate states: all chapters, the clauses and the definitions around
/// them, all tables and all code points, and the data besides. A result that names it names the exact text that it was judged by.
///
/// Runs of whitespace count as one blank, so that wrapping a line anew changes nothing.
pub fn digest() -> String {
    let chapters = CHAPTERS.iter().map(|&(name, _, text)| (name, text));
    let tables = TABLES.iter().chain([&CODES]).chain(DATA).chain(STATES);
    let tables = tables.copied();
    let mut sha = Sha256::new();
    for (name, text) in chapters.chain(tables) {
        // Neither a name nor a normalised text holds a line feed, so that the parts cannot run into each other.
        sha.update(name);
        sha.update("\n");
        sha.update(normalised(text));
        sha.update("\n");
    }
    hex(&sha.finalize())
}

/// SHA-256, in hex, of one text without regard to how its whitespace runs.
pub(crate) fn text_digest(text: &str) -> String {
    hex(&Sha256::digest(normalised(text)))
}

/// The words of `text` with single blanks between them.
pub(crate) fn normalised(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        // Writing to a string cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_sha_256_of_the_words() {
        assert_eq!(text_digest("abc  def"), text_digest("abc\n def"));
        assert_ne!(text_digest("abc def"), text_digest("abcdef"));
        assert_eq!(
            text_digest("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn the_digest_of_the_specification_is_stable_within_a_build() {
        assert_eq!(digest(), digest());
        assert_eq!(digest().len(), 64);
    }
}
