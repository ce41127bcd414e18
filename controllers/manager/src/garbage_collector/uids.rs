//! Uids as the graph keeps them: one that is written as the server writes them takes 16 bytes and no allocation.

use machinery_meta::Uid;
use std::fmt::Write as _;

/// A uid; orders and compares as something of its own, not as its text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ShortUid {
    /// Eight, four, four, four and twelve lower-case digits.
    Digits([u8; 16]),
    /// Any other text that a client sends as a uid.
    Text(Box<str>),
}

const HYPHENS: [usize; 4] = [8, 13, 18, 23];
const TEXT_BYTES: usize = 36;

impl From<&Uid> for ShortUid {
    fn from(uid: &Uid) -> Self {
        digits(uid.0.as_bytes()).map_or_else(|| Self::Text(uid.0.as_str().into()), Self::Digits)
    }
}

impl From<&ShortUid> for Uid {
    fn from(short: &ShortUid) -> Self {
        let digits = match short {
            ShortUid::Digits(digits) => digits,
            ShortUid::Text(text) => return Self(text.to_string()),
        };
        let mut text = String::with_capacity(TEXT_BYTES);
        for byte in digits {
            if HYPHENS.contains(&text.len()) {
                text.push('-');
            }
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        Self(text)
    }
}

fn digits(text: &[u8]) -> Option<[u8; 16]> {
    if text.len() != TEXT_BYTES || HYPHENS.iter().any(|at| text[*at] != b'-') {
        return None;
    }
    let value = |digit: &u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut out = [0; 16];
    let mut at = 0;
    for byte in &mut out {
        at += usize::from(HYPHENS.contains(&at));
        *byte = value(&text[at])? << 4 | value(&text[at + 1])?;
        at += 2;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_kept_as_they_were_written() {
        let check = |text: &str, short: bool| {
            let own = ShortUid::from(&Uid(text.to_owned()));
            assert_eq!(matches!(own, ShortUid::Digits(_)), short, "{text}");
            assert_eq!(Uid::from(&own).0, text);
        };
        check("0123abcd-4567-89ab-cdef-0123456789ab", true);
        check("00000000-0000-0000-0000-000000000000", true);
        // Others are others.
        check("0123ABCD-4567-89ab-cdef-0123456789ab", false);
        check("0123abcd45-67-89ab-cdef-0123456789ab", false);
        check("0123abcd-4567-89ab-cdef-0123456789abc", false);
        check("g123abcd-4567-89ab-cdef-0123456789ab", false);
        check("-123abcd-4567-89ab-cdef-0123456789ab", false);
        check("invented", false);
        check("", false);
    }
}
