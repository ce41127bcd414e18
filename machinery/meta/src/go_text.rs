//! Text as Go prints it.

/// A string as Go's `%q` prints it.
pub fn go_quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if is_printable(c) => out.push(c),
            c if (c as u32) < 0x1_0000 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push_str(&format!("\\U{:08x}", c as u32)),
        }
    }
    out.push('"');
    out
}

/// Reports whether Go's `unicode.IsPrint` lets a character pass: letters, marks, numbers, punctuation, symbols and the space of ASCII.
pub fn is_printable(character: char) -> bool {
    match character {
        ' '..='~' => true,
        _ if character.is_control() || character.is_whitespace() => false,
        _ => !is_format_or_private(character),
    }
}

/// Format characters (Cf), private use and what is no character at all.
fn is_format_or_private(character: char) -> bool {
    matches!(u32::from(character),
        0xAD | 0x600..=0x605 | 0x61C | 0x6DD | 0x70F | 0x890..=0x891 | 0x8E2 | 0x180E
        | 0x200B..=0x200F | 0x202A..=0x202E | 0x2060..=0x206F | 0xFDD0..=0xFDEF | 0xFEFF | 0xFFF0..=0xFFFB
        | 0x110BD | 0x110CD | 0x13430..=0x1343F | 0x1BCA0..=0x1BCA3 | 0x1D173..=0x1D17A
        | 0xE000..=0xF8FF | 0xE0000..=0xE00FF | 0xE01F0..=0x10_FFFF)
        || u32::from(character) & 0xFFFE == 0xFFFE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_quote_escapes_as_go_does() {
        for (text, expected) in [
            ("a\0b", r#""a\x00b""#),
            ("a\u{7f}b", r#""a\x7fb""#),
            ("\u{7}\u{8}\u{b}\u{c}\n\r\t", r#""\a\b\v\f\n\r\t""#),
            ("it's \"q\" \\", r#""it's \"q\" \\""#),
            ("\u{200b}\u{e000}é", r#""\u200b\ue000é""#),
            ("\u{1f600}\u{10ffff}", "\"\u{1f600}\\U0010ffff\""),
        ] {
            assert_eq!(go_quote(text), expected);
        }
    }
}
