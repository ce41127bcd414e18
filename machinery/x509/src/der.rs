//! Reader of DER: single-byte tags and definite, shortest lengths, as Go's `cryptobyte` takes them.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use std::borrow::Cow;

pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The bytes are no certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed certificate: {0}")]
pub struct Malformed(pub(crate) &'static str);

/// Returns the tag of a context-specific element that is primitive.
pub(crate) const fn context(number: u8) -> u8 {
    0x80 | number
}

/// Returns the tag of a context-specific element that holds others.
pub(crate) const fn constructed(number: u8) -> u8 {
    0xa0 | number
}

/// Unread rest of an element's content.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

/// One element.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Element<'a> {
    pub(crate) tag: u8,
    pub(crate) content: &'a [u8],
    /// Tag and length included.
    pub(crate) whole: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next element, of whatever kind.
    pub(crate) fn element(&mut self) -> Option<Element<'a>> {
        let (tag, first) = (*self.0.first()?, usize::from(*self.0.get(1)?));
        // Tags of several bytes stand nowhere in a certificate.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (length, head) = match first {
            0..=0x7f => (first, 2),
            0x81..=0x84 => {
                let bytes = self.0.get(2..2 + (first & 0x7f))?;
                let length = bytes
                    .iter()
                    .fold(0, |length, byte| length << 8 | usize::from(*byte));
                let is_shortest = bytes[0] != 0 && length >= 0x80;
                (is_shortest.then_some(length)?, 2 + bytes.len())
            }
            _ => return None,
        };
        let whole = self.0.get(..head.checked_add(length)?)?;
        self.0 = &self.0[whole.len()..];
        Some(Element {
            tag,
            content: &whole[head..],
            whole,
        })
    }

    /// The next element, which has this tag.
    pub(crate) fn expect(&mut self, tag: u8, what: &'static str) -> Result<Element<'a>, Malformed> {
        self.element().filter(|own| own.tag == tag).ok_or(Malformed(what))
    }

    /// The content of the next element, which has this tag.
    pub(crate) fn inner(&mut self, tag: u8, what: &'static str) -> Result<Self, Malformed> {
        self.expect(tag, what).map(|own| Self(own.content))
    }

    /// Reports whether the next element has this tag.
    pub(crate) fn is_next(&self, tag: u8) -> bool {
        self.0.first() == Some(&tag)
    }

    /// The next element where it has this tag; otherwise nothing is read.
    pub(crate) fn optional(&mut self, tag: u8, what: &'static str) -> Result<Option<Self>, Malformed> {
        self.is_next(tag).then(|| self.inner(tag, what)).transpose()
    }

    /// An object identifier, encoded. Its numbers have 31 bits at most.
    pub(crate) fn identifier(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        let own = self.expect(OBJECT_IDENTIFIER, what)?.content;
        is_identifier(own).then_some(own).ok_or(Malformed(what))
    }

    /// An integer, big-endian and in two's complement.
    pub(crate) fn integer(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        let own = self.expect(INTEGER, what)?.content;
        shortest_integer(own).ok_or(Malformed(what))
    }

    /// An integer that is not negative and fits.
    pub(crate) fn small_integer(&mut self, what: &'static str) -> Result<u64, Malformed> {
        let own = self.integer(what)?;
        unsigned(own).ok_or(Malformed(what))
    }

    /// The same where there is one.
    pub(crate) fn optional_small_integer(&mut self, what: &'static str) -> Result<Option<u64>, Malformed> {
        let own = self.optional(INTEGER, what)?;
        own.map(|own| unsigned(own.0).ok_or(Malformed(what))).transpose()
    }

    /// A boolean, which is false where it is absent.
    pub(crate) fn optional_boolean(&mut self, what: &'static str) -> Result<bool, Malformed> {
        match self.optional(BOOLEAN, what)?.map(|own| own.0) {
            None | Some([0]) => Ok(false),
            Some([0xff]) => Ok(true),
            Some(_) => Err(Malformed(what)),
        }
    }

    /// An integer that fits in 64 bits.
    pub(crate) fn long_integer(&mut self, tag: u8, what: &'static str) -> Result<(), Malformed> {
        let own = shortest_integer(self.expect(tag, what)?.content);
        own.filter(|own| own.len() <= 8).map(drop).ok_or(Malformed(what))
    }

    /// Whole bytes in a string of bits.
    pub(crate) fn bytes_of_bits(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        match self.bits(what)? {
            (0, bytes) => Ok(bytes),
            _ => Err(Malformed(what)),
        }
    }

    /// Bytes of a string of bits, the last bit of the string lowest (Go's `RightAlign`).
    pub(crate) fn aligned_bits(&mut self, what: &'static str) -> Result<Cow<'a, [u8]>, Malformed> {
        let (padding, bytes) = self.bits(what)?;
        if padding == 0 {
            return Ok(Cow::Borrowed(bytes));
        }
        let before = [0].iter().chain(bytes);
        let pairs = before.zip(bytes);
        let shifted = pairs.map(|(before, own)| before << (8 - padding) | own >> padding);
        Ok(Cow::Owned(shifted.collect()))
    }

    /// The number of bits that are no part of a string, which are zero, and its bytes.
    fn bits(&mut self, what: &'static str) -> Result<(u8, &'a [u8]), Malformed> {
        let [padding @ 0..=7, bytes @ ..] = self.expect(BIT_STRING, what)?.content else {
            return Err(Malformed(what));
        };
        let unused = bytes.last().map_or(*padding, |last| last & ((1 << *padding) - 1));
        let is_right = unused == 0;
        is_right.then_some((*padding, bytes)).ok_or(Malformed(what))
    }

    /// The first nine bits of a string, the first one lowest.
    pub(crate) fn first_bits(&mut self, what: &'static str) -> Result<u16, Malformed> {
        let (_, bytes) = self.bits(what)?;
        let bit = |at: usize| {
            bytes
                .get(at / 8)
                .is_some_and(|byte| byte & (0x80 >> (at % 8)) != 0)
        };
        Ok((0..9).filter(|at| bit(*at)).fold(0, |bits, at| bits | 1 << at))
    }

    /// A time in one of the two forms of RFC 5280, 4.1.2.5. As Go it also takes what the RFC forbids: other zones than UTC, and in the
    /// short form no seconds.
    pub(crate) fn time(&mut self) -> Result<Timestamp, Malformed> {
        const WHAT: &str = "a time";
        let own = self.element().ok_or(Malformed(WHAT))?;
        let (digits, offset_seconds) = zone(own.content).ok_or(Malformed(WHAT))?;
        let (year, rest) = match (own.tag, digits.len()) {
            (UTC_TIME, 10 | 12) => (digits.split_at(2).0, &digits[2..]),
            (GENERALIZED_TIME, 14) => (digits.split_at(4).0, &digits[4..]),
            _ => return Err(Malformed(WHAT)),
        };
        let year = number(year).ok_or(Malformed(WHAT))?;
        let year = match own.tag {
            UTC_TIME if year >= 50 => 1900 + year,
            UTC_TIME => 2000 + year,
            _ => year,
        };
        moment(year, rest, offset_seconds).ok_or(Malformed(WHAT))
    }
}

fn shortest_integer(own: &[u8]) -> Option<&[u8]> {
    match own {
        [] | [0, 0..=0x7f, ..] | [0xff, 0x80..=0xff, ..] => None,
        _ => Some(own),
    }
}

/// The value of an integer's content where it is not negative and fits.
fn unsigned(own: &[u8]) -> Option<u64> {
    let own = shortest_integer(own).filter(|own| own[0] < 0x80)?;
    let significant = own.strip_prefix(&[0]).unwrap_or(own);
    (significant.len() <= 8).then(|| {
        significant
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    })
}

fn number(digits: &[u8]) -> Option<i16> {
    digits.iter().try_fold(0_i16, |sum, digit| {
        digit.is_ascii_digit().then(|| sum * 10 + i16::from(digit - b'0'))
    })
}

/// A time without its zone, and the seconds by which that is ahead of UTC.
fn zone(time: &[u8]) -> Option<(&[u8], i64)> {
    if let Some(digits) = time.strip_suffix(b"Z") {
        return Some((digits, 0));
    }
    let (digits, [sign, offset @ ..]) = time.split_at_checked(time.len().checked_sub(5)?)? else {
        return None;
    };
    let (hours, minutes) = (number(&offset[..2])?, number(&offset[2..])?);
    let seconds = i64::from(hours) * 3_600 + i64::from(minutes) * 60;
    // Nothing is written as `Z`.
    let is_right = hours <= 24 && minutes < 60 && seconds > 0;
    let seconds = match sign {
        b'+' => seconds,
        b'-' => -seconds,
        _ => return None,
    };
    is_right.then_some((digits, seconds))
}

/// Numbers of at most 31 bits, seven of them in a byte, in their shortest form.
fn is_identifier(own: &[u8]) -> bool {
    let (mut number, mut is_within) = (0_u32, false);
    for byte in own {
        if number >= 1 << 24 || !is_within && *byte == 0x80 {
            return false;
        }
        is_within = byte & 0x80 != 0;
        number = if is_within {
            number << 7 | u32::from(byte & 0x7f)
        } else {
            0
        };
    }
    !own.is_empty() && !is_within
}

/// Month, day, hour, minute and second, two digits each, of a year; without the last one it is zero. A time after the last one that
/// can be known is the last one.
fn moment(year: i16, digits: &[u8], offset_seconds: i64) -> Option<Timestamp> {
    let mut parts = [0_i8; 5];
    for (part, digits) in parts.iter_mut().zip(digits.chunks(2)) {
        *part = i8::try_from(number(digits)?).ok()?;
    }
    let [month, day, hour, minute, second] = parts;
    let moment = DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    let zoned = moment.to_zoned(TimeZone::UTC);
    let local = zoned.map_or(Timestamp::MAX, |zoned| zoned.timestamp());
    let offset = SignedDuration::from_secs(offset_seconds);
    Some(local.checked_sub(offset).unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(tag: u8, text: &str) -> Option<String> {
        let mut element = vec![tag, u8::try_from(text.len()).unwrap()];
        element.extend_from_slice(text.as_bytes());
        Reader::new(&element).time().ok().map(|time| time.to_string())
    }

    #[test]
    fn times_of_certificates_are_read_in_both_forms() {
        for (tag, text, expected) in [
            (UTC_TIME, "491231235959Z", Some("2049-12-31T23:59:59Z")),
            (UTC_TIME, "500101000000Z", Some("1950-01-01T00:00:00Z")),
            (UTC_TIME, "261122235960Z", None),
            (UTC_TIME, "260230000000Z", None),
            (UTC_TIME, "26112223595Z", None),
            (UTC_TIME, "2611222359 9Z", None),
            (UTC_TIME, "2611222359Z", Some("2026-11-22T23:59:00Z")),
            (UTC_TIME, "261122235959+0100", Some("2026-11-22T22:59:59Z")),
            (UTC_TIME, "2611222359-0130", Some("2026-11-23T01:29:00Z")),
            (UTC_TIME, "261122235959+0000", None),
            (UTC_TIME, "261122235959+0160", None),
            (UTC_TIME, "261122235959+2500", None),
            (UTC_TIME, "261122235959*0100", None),
            (UTC_TIME, "261122235959", None),
            (UTC_TIME, "+0100", None),
            (GENERALIZED_TIME, "202611222359Z", None),
            (
                GENERALIZED_TIME,
                "20261122000000-0100",
                Some("2026-11-22T01:00:00Z"),
            ),
            (GENERALIZED_TIME, "20261122000000Z", Some("2026-11-22T00:00:00Z")),
            (
                GENERALIZED_TIME,
                "99991231235959Z",
                Some("9999-12-30T22:00:00.999999999Z"),
            ),
            (GENERALIZED_TIME, "261122000000Z", None),
            (OCTET_STRING, "261122000000Z", None),
        ] {
            assert_eq!(time(tag, text).as_deref(), expected, "{text}");
        }
    }

    /// Each answer is that of Go's `ReadASN1ObjectIdentifier`.
    #[test]
    fn identifiers_have_numbers_of_31_bits() {
        for (bytes, expected) in [
            (&[0x2a_u8, 3][..], true),
            (&[0x55, 0x1d, 0x87, 0xff, 0xff, 0xff, 0x7f], true),
            (&[0x55, 0x1d, 0x88, 0x80, 0x80, 0x80, 0], false),
            (&[0x55, 0x1d, 0x81, 0x80, 0x80, 0x80, 0x80, 0], false),
            (&[0x55, 0x80, 1], false),
            (&[0x80], false),
            (&[0x55, 0x81], false),
            (&[], false),
        ] {
            assert_eq!(is_identifier(bytes), expected, "{bytes:x?}");
        }
    }

    #[test]
    fn strings_of_bits_are_aligned_as_in_go() {
        let aligned = |content: &[u8]| {
            let element = [&[BIT_STRING, u8::try_from(content.len()).unwrap()], content].concat();
            let found = Reader::new(&element).aligned_bits("bits").map(Cow::into_owned);
            found.ok()
        };
        assert_eq!(aligned(&[0, 1, 2]), Some(vec![1, 2]));
        assert_eq!(aligned(&[4, 0x12, 0x30]), Some(vec![0x01, 0x23]));
        assert_eq!(aligned(&[7, 0x81, 0x80]), Some(vec![1, 3]));
        assert_eq!(aligned(&[0]), Some(Vec::new()));
        for wrong in [&[] as &[u8], &[1], &[8, 0], &[4, 0x12, 0x31]] {
            assert_eq!(aligned(wrong), None, "{wrong:x?}");
        }
    }

    #[test]
    fn lengths_and_integers_have_one_form() {
        let content = |bytes: &[u8]| Reader::new(bytes).element().map(|own| own.content.len());
        let long = |head: &[u8], length: usize| {
            let mut bytes = head.to_vec();
            bytes.resize(head.len() + length, 7);
            content(&bytes)
        };
        assert_eq!(long(&[4, 3], 3), Some(3));
        assert_eq!(long(&[4, 0x81, 0x80], 0x80), Some(0x80));
        assert_eq!(long(&[4, 0x82, 1, 0], 0x100), Some(0x100));
        assert_eq!(long(&[4, 3], 2), None, "an element ends within its parent");
        assert_eq!(long(&[4, 0x81, 3], 3), None, "a longer form than it needs");
        assert_eq!(
            long(&[4, 0x82, 0, 0x80], 0x80),
            None,
            "a longer form than it needs"
        );
        assert_eq!(long(&[4, 0x80], 3), None, "indefinite");
        assert_eq!(long(&[0x1f, 3], 3), None, "a tag of several bytes");
        assert_eq!(unsigned(&[0, 0x80]), Some(0x80));
        for wrong in [&[] as &[u8], &[0, 1], &[0x80], &[0xff, 0x80], &[1; 9]] {
            assert_eq!(unsigned(wrong), None, "{wrong:?}");
        }
    }
}
