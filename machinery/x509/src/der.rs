//! Reader of DER: single-byte tags and definite, shortest lengths, as Go's `cryptobyte` takes them.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
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

/// What is left of an element's content.
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

    /// The next element where it has this tag; otherwise nothing is read.
    pub(crate) fn optional(&mut self, tag: u8, what: &'static str) -> Result<Option<Self>, Malformed> {
        match self.0.first() {
            Some(next) if *next == tag => self.inner(tag, what).map(Some),
            _ => Ok(None),
        }
    }

    /// An object identifier, encoded.
    pub(crate) fn identifier(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        let own = self.expect(OBJECT_IDENTIFIER, what)?.content;
        let is_whole = own.last().is_some_and(|last| last & 0x80 == 0);
        is_whole.then_some(own).ok_or(Malformed(what))
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

    /// Whole bytes in a string of bits.
    pub(crate) fn bytes_of_bits(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        match self.expect(BIT_STRING, what)?.content {
            [0, bytes @ ..] => Ok(bytes),
            _ => Err(Malformed(what)),
        }
    }

    /// The first nine bits of a string, the first one lowest.
    pub(crate) fn first_bits(&mut self, what: &'static str) -> Result<u16, Malformed> {
        let (padding, bytes) = match self.expect(BIT_STRING, what)?.content {
            [padding @ 0..=7, bytes @ ..] => (*padding, bytes),
            _ => return Err(Malformed(what)),
        };
        let unused = bytes.last().map_or(padding, |last| last & ((1 << padding) - 1));
        if unused != 0 {
            return Err(Malformed(what));
        }
        let bit = |at: usize| {
            bytes
                .get(at / 8)
                .is_some_and(|byte| byte & (0x80 >> (at % 8)) != 0)
        };
        Ok((0..9).filter(|at| bit(*at)).fold(0, |bits, at| bits | 1 << at))
    }

    /// A time in one of the two forms of RFC 5280, 4.1.2.5. Go also takes other zones than UTC, which the RFC forbids.
    pub(crate) fn time(&mut self) -> Result<Timestamp, Malformed> {
        const WHAT: &str = "a time";
        let own = self.element().ok_or(Malformed(WHAT))?;
        let digits = own.content.strip_suffix(b"Z").ok_or(Malformed(WHAT))?;
        let (year, rest) = match (own.tag, digits.len()) {
            (UTC_TIME, 12) => (digits.split_at(2).0, &digits[2..]),
            (GENERALIZED_TIME, 14) => (digits.split_at(4).0, &digits[4..]),
            _ => return Err(Malformed(WHAT)),
        };
        let year = number(year).ok_or(Malformed(WHAT))?;
        let year = match own.tag {
            UTC_TIME if year >= 50 => 1900 + year,
            UTC_TIME => 2000 + year,
            _ => year,
        };
        moment(year, rest).ok_or(Malformed(WHAT))
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

/// Month, day, hour, minute and second, two digits each, of a year. A time after the last one that can be told is the last one.
fn moment(year: i16, digits: &[u8]) -> Option<Timestamp> {
    let mut parts = [0_i8; 5];
    for (part, digits) in parts.iter_mut().zip(digits.chunks(2)) {
        *part = i8::try_from(number(digits)?).ok()?;
    }
    let [month, day, hour, minute, second] = parts;
    let moment = DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    let zoned = moment.to_zoned(TimeZone::UTC);
    Some(zoned.map_or(Timestamp::MAX, |zoned| zoned.timestamp()))
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
            (UTC_TIME, "261122235959+0100", None),
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
