//! Bytes as hex digits.

/// Two lower-case digits for each byte.
pub(super) fn encode(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    let digit = |nibble: u8| DIGITS[usize::from(nibble & 0x0f)];
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(*byte)])
        .collect()
}

/// The bytes, or nothing when `text` is not pairs of hex digits.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs
        .iter()
        .map(|[high, low]| Some(nibble(*high)? << 4 | nibble(*low)?))
        .collect()
}

/// A number of at most 64 bits, written as `0x` and hex digits.
pub(super) fn number(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x")?;
    // `from_str_radix` takes a sign as well, which is no digit.
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_what_is_no_hex() {
        for bad in ["0", "0g", "+1", "é", " 1"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
        for bad in ["", "0x", "12", "0x+1", "0x10000000000000000"] {
            assert_eq!(number(bad), None, "{bad}");
        }
        assert_eq!(number("0xffffffffffffffff"), Some(u64::MAX));
    }

    proptest! {
        #[test]
        fn round_trips(bytes: Vec<u8>, value: u64) {
            prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
            prop_assert_eq!(number(&format!("{value:#x}")), Some(value));
        }
    }
}
