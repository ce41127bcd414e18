//! Distinguished names.

use crate::der::{Malformed, Reader, SEQUENCE, SET};
use std::borrow::Cow;

/// `commonName`, `organizationName` and upstream's user identifier (1.3.6.1.4.1.57683.2).
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const ORGANIZATION: &[u8] = &[0x55, 4, 10];
const USER_ID: &[u8] = &[0x2b, 6, 1, 4, 1, 0x83, 0xc2, 0x53, 2];

const WHAT: &str = "a name";

/// Attributes of a subject, in order.
#[derive(Debug)]
pub(crate) struct Name<'a>(Vec<(&'a [u8], Cow<'a, str>)>);

impl<'a> Name<'a> {
    /// Reads the content of a name's sequence.
    pub(crate) fn read(mut names: Reader<'a>) -> Result<Self, Malformed> {
        let mut attributes = Vec::new();
        while !names.is_empty() {
            let mut set = names.inner(SET, WHAT)?;
            while !set.is_empty() {
                let mut attribute = set.inner(SEQUENCE, WHAT)?;
                let kind = attribute.identifier(WHAT)?;
                let value = attribute.element().ok_or(Malformed(WHAT))?;
                attributes.push((kind, text(value.tag, value.content)?));
            }
        }
        Ok(Self(attributes))
    }

    fn values(&self, kind: &'static [u8]) -> impl DoubleEndedIterator<Item = &str> {
        let own = self.0.iter().filter(move |(own, _)| *own == kind);
        own.map(|(_, value)| value.as_ref())
    }

    /// The last common name, which is the one that Go takes.
    pub(crate) fn common_name(&self) -> &str {
        self.values(COMMON_NAME).next_back().unwrap_or_default()
    }

    pub(crate) fn organizations(&self) -> impl Iterator<Item = &str> {
        self.values(ORGANIZATION)
    }

    pub(crate) fn user_ids(&self) -> impl Iterator<Item = &str> {
        self.values(USER_ID)
    }
}

/// A string of one of the kinds that Go reads (`parseASN1String`).
fn text(tag: u8, value: &[u8]) -> Result<Cow<'_, str>, Malformed> {
    const UTF8: u8 = 0x0c;
    const NUMERIC: u8 = 0x12;
    const PRINTABLE: u8 = 0x13;
    const T61: u8 = 0x14;
    const IA5: u8 = 0x16;
    const BMP: u8 = 0x1e;
    let is_of = |allowed: fn(u8) -> bool| value.iter().all(|byte| allowed(*byte));
    let is_right = match tag {
        // Latin-1, as other implementations read it.
        T61 => return Ok(value.iter().map(|byte| char::from(*byte)).collect()),
        BMP => return two_bytes_each(value).ok_or(Malformed(WHAT)).map(Cow::Owned),
        UTF8 => true,
        NUMERIC => is_of(|byte| byte.is_ascii_digit() || byte == b' '),
        PRINTABLE => is_of(is_printable),
        IA5 => value.is_ascii(),
        _ => false,
    };
    let text = std::str::from_utf8(value).ok().filter(|_| is_right);
    text.map(Cow::Borrowed).ok_or(Malformed(WHAT))
}

/// `*` and `&` do not belong there, and are found there.
fn is_printable(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b" '()+,-./:=?*&".contains(&byte)
}

/// A final zero ends the string; surrogates and noncharacters are refused.
fn two_bytes_each(value: &[u8]) -> Option<String> {
    if !value.len().is_multiple_of(2) {
        return None;
    }
    let value = value.strip_suffix(&[0, 0]).unwrap_or(value);
    let points = value
        .chunks_exact(2)
        .map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    points
        .map(|point| match point {
            0xfffe | 0xffff | 0xfdd0..=0xfdef => None,
            _ => char::from_u32(point.into()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_names_are_those_that_go_reads() {
        for (tag, value, expected) in [
            (0x0c, "anna ü".as_bytes(), Some("anna ü")),
            (0x0c, b"\xff", None),
            (0x13, b"anna-1 (*&)", Some("anna-1 (*&)")),
            (0x13, b"anna_1", None),
            (0x13, b"anna@1", None),
            (0x14, b"\xfcber", Some("über")),
            (0x16, b"anna@1", Some("anna@1")),
            (0x16, b"\xfc", None),
            (0x12, b"1 2", Some("1 2")),
            (0x12, b"a", None),
            (0x1e, b"\0a\0n\0\0", Some("an")),
            (0x1e, b"\0a\0", None),
            (0x1e, b"\xd8\0", None),
            (0x1e, b"\xff\xfe", None),
            // UniversalString.
            (0x1c, b"\0\0\0a", None),
        ] {
            assert_eq!(text(tag, value).ok().as_deref(), expected, "{tag:#x} {value:?}");
        }
    }
}
