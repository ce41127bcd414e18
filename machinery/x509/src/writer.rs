//! Writer of DER: elements with definite, shortest lengths.

use crate::der::{BIT_STRING, INTEGER, SEQUENCE};
use jiff::Timestamp;
use jiff::tz::TimeZone;

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// One element of these parts.
pub(crate) fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut written = vec![tag];
    push_length(&mut written, length);
    parts.iter().for_each(|part| written.extend_from_slice(part));
    written
}

pub(crate) fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    element(SEQUENCE, parts)
}

/// Whole bytes as a string of bits.
pub(crate) fn bytes_as_bits(bytes: &[u8]) -> Vec<u8> {
    element(BIT_STRING, &[&[0], bytes])
}

/// Bits with names, the first one lowest: what follows the last one that is set is not written.
pub(crate) fn named_bits(bits: u16) -> Vec<u8> {
    let [low, high] = bits.to_le_bytes().map(u8::reverse_bits);
    let bytes: &[u8] = match (low, high) {
        (0, 0) => &[],
        (_, 0) => &[low],
        _ => &[low, high],
    };
    let unused = bytes.last().map_or(0, |last| last.trailing_zeros());
    let unused = u8::try_from(unused).expect("a byte has at most eight zeros");
    element(BIT_STRING, &[&[unused], bytes])
}

/// An integer that is not negative, from big-endian bytes.
pub(crate) fn unsigned(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    match &bytes[zeros..] {
        [] => element(INTEGER, &[&[0]]),
        own @ [0x80..=0xff, ..] => element(INTEGER, &[&[0], own]),
        own => element(INTEGER, &[own]),
    }
}

/// A time in the form that RFC 5280, 4.1.2.5 wants for its year, in whole seconds.
pub(crate) fn time(at: Timestamp) -> Vec<u8> {
    let at = at.to_zoned(TimeZone::UTC);
    let (tag, form) = match at.year() {
        1950..=2049 => (UTC_TIME, "%y%m%d%H%M%SZ"),
        _ => (GENERALIZED_TIME, "%Y%m%d%H%M%SZ"),
    };
    element(tag, &[at.strftime(form).to_string().as_bytes()])
}

fn push_length(written: &mut Vec<u8>, length: usize) {
    if let Ok(short @ 0..=0x7f) = u8::try_from(length) {
        return written.push(short);
    }
    let bytes = length.to_be_bytes();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let count = u8::try_from(bytes.len() - zeros).expect("a length has at most eight bytes");
    written.push(0x80 | count);
    written.extend_from_slice(&bytes[zeros..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::der::{OCTET_STRING, Reader};

    #[test]
    fn lengths_are_read_again() {
        for length in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0x1_0000] {
            let content = vec![7; length];
            let written = element(OCTET_STRING, &[&content]);
            let read = Reader::new(&written).element().expect("one element");
            assert_eq!((read.tag, read.content.len()), (OCTET_STRING, length));
        }
    }

    #[test]
    fn integers_and_bits_have_their_shortest_form() {
        assert_eq!(unsigned(&[0, 0]), [2, 1, 0]);
        assert_eq!(unsigned(&[0, 0x7f]), [2, 1, 0x7f]);
        assert_eq!(unsigned(&[0x80, 1]), [2, 3, 0, 0x80, 1]);
        assert_eq!(named_bits(0), [3, 1, 0]);
        assert_eq!(named_bits(0b101), [3, 2, 5, 0xa0]);
        assert_eq!(named_bits(1 << 8), [3, 3, 7, 0, 0x80]);
    }

    #[test]
    fn times_are_read_again() {
        for at in [
            "1950-01-01T00:00:00Z",
            "2049-12-31T23:59:59Z",
            "2050-01-01T00:00:00Z",
        ] {
            let at: Timestamp = at.parse().unwrap();
            assert_eq!(Reader::new(&time(at)).time().unwrap(), at);
        }
    }
}
