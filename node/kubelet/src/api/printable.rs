//! Text that others chose, in what we write about it: events and statuses are printed to terminals.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The text with its control characters written as Go's `%q` does, but for line ends and tabs.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let raw = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
    if !text.contains(raw) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        // Writing to a string does not fail.
        let _ = match u32::from(character) {
            code if raw(character) && code < 0x80 => write!(out, "\\x{code:02x}"),
            code if raw(character) => write!(out, "\\u{code:04x}"),
            _ => out.write_char(character),
        };
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn control_characters_are_written_out() {
        let check = |text, expected| assert_eq!(printable(text), expected);
        check("a\nb\tc ö", "a\nb\tc ö");
        check("a\0b\x1b[31m\r\x7f", r"a\x00b\x1b[31m\x0d\x7f");
        check("\u{9b}31m", r"\u009b31m");
    }
}
