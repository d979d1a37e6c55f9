//! Making text from outside safe to show.

use std::fmt::Write as _;

/// The text on one line, everything that could act instead of being read written as `\u{…}`.
///
/// That is: control characters (line ends and ESC among them), characters that reorder or hide text, and those that XML
/// cannot carry. A backslash that would look like such an escape is escaped itself.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if acts(c) || (c == '\\' && rest.as_str().starts_with("u{")) {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// [`printable`], cut to about `limit` characters with a note of how many are left out. Never cuts an escape in two.
pub(crate) fn clipped(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => printable(text),
        Some((cut, _)) => {
            let left = text[cut..].chars().count();
            format!("{}… (+{left} characters)", printable(&text[..cut]))
        }
    }
}

/// How many columns a text takes, as far as characters tell; wide ones are not looked up.
pub(crate) fn width(text: &str) -> usize {
    text.chars().count()
}

/// The text filled with blanks up to `columns`.
pub(crate) fn padded(text: &str, columns: usize) -> String {
    let blanks = columns.saturating_sub(width(text));
    format!("{text}{}", " ".repeat(blanks))
}

fn acts(c: char) -> bool {
    c.is_control()
        || matches!(
            u32::from(c),
            // Soft hyphen, Arabic letter mark, zero-width and direction marks, line and paragraph separators, embeddings,
            // overrides, isolates, byte-order mark, interlinear marks, tag characters.
            0xAD | 0x61C | 0x200B..=0x200F | 0x2028..=0x202E | 0x2060..=0x206F | 0xFEFF
                | 0xFFF9..=0xFFFB | 0xE0000..=0xE007F
        )
        || u32::from(c) & 0xFFFE == 0xFFFE
}

#[cfg(test)]
mod tests {
    use super::{clipped, printable};

    #[test]
    fn characters_that_act_are_spelled_out() {
        assert_eq!(
            printable("a\x1b[31mb\r\n\0"),
            r"a\u{1b}[31mb\u{d}\u{a}\u{0}"
        );
        assert_eq!(
            printable("\u{202e}\u{9b}\u{ffff}\u{1fffe}"),
            r"\u{202e}\u{9b}\u{ffff}\u{1fffe}"
        );
        assert_eq!(printable("grüße, 字, \\n"), "grüße, 字, \\n");
    }

    #[test]
    fn an_escape_in_the_text_differs_from_one_made_here() {
        assert_eq!(printable(r"\u{1b}"), r"\u{5c}u{1b}");
        assert_ne!(printable(r"\u{1b}"), printable("\x1b"));
    }

    #[test]
    fn long_text_is_cut_between_characters_and_says_so() {
        assert_eq!(clipped("äöü", 3), "äöü");
        assert_eq!(clipped("äöüß", 3), "äöü… (+1 characters)");
        assert_eq!(clipped("\x1b\x1b", 1), r"\u{1b}… (+1 characters)");
    }
}
