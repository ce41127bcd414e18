//! The time of a line as its writer wrote it: RFC 3339, with any number of digits behind the second.

use std::borrow::Cow;

use jiff::Timestamp;

/// Position of the fraction or the offset: after `2026-11-21T12:00:00`.
const WHOLE_SECONDS: usize = 19;
/// Digits that a time is shown with.
const DIGITS: usize = 9;

/// A moment, and how it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogTime<'a> {
    text: Cow<'a, str>,
    /// The moment.
    pub(crate) at: Timestamp,
}

impl<'a> LogTime<'a> {
    /// Parses what Go's layout `RFC3339Nano` does.
    pub(crate) fn parse(text: Cow<'a, str>) -> Option<Self> {
        let at = rfc3339(&text)?;
        Some(Self { text, at })
    }

    /// The same with nine digits behind the second and in its own offset: Go's layout
    /// `2006-01-02T15:04:05.000000000Z07:00`.
    pub(crate) fn fixed(&self) -> String {
        let (seconds, rest) = self.text.split_at(WHOLE_SECONDS);
        let (digits, offset) = fraction(rest);
        let digits = &digits[..digits.len().min(DIGITS)];
        let offset = match offset {
            "+00:00" | "-00:00" => "Z",
            offset => offset,
        };
        format!("{seconds}.{digits:0<DIGITS$}{offset}")
    }
}

/// The moment that a text in RFC 3339 names, as Go reads it: no leap second, and what is less than a nanosecond is cut. A moment of the
/// year 9999 beyond the last that is known here is that one.
pub(crate) fn rfc3339(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let is = |at: usize, byte: u8| bytes.get(at) == Some(&byte);
    let marks = is(4, b'-') && is(7, b'-') && is(10, b'T') && is(13, b':') && is(16, b':');
    if !marks || !text.is_ascii() || bytes.len() <= WHOLE_SECONDS || text.get(17..19) == Some("60") {
        return None;
    }
    let (seconds, rest) = text.split_at(WHOLE_SECONDS);
    let (digits, offset) = fraction(rest);
    let has_point = rest.starts_with(['.', ',']);
    if has_point == digits.is_empty() || !is_offset(offset) {
        return None;
    }
    let shortened = match digits.len() {
        0..=DIGITS => Cow::Borrowed(text),
        _ => format!("{seconds}.{}{offset}", &digits[..DIGITS]).into(),
    };
    let read = |text: &str| text.parse::<Timestamp>().ok();
    read(&shortened).or_else(|| {
        // Both years have the same days.
        let same = format!("9998{}", shortened.strip_prefix("9999")?);
        read(&same).map(|_| Timestamp::MAX)
    })
}

/// The digits behind the second, and what follows them.
fn fraction(rest: &str) -> (&str, &str) {
    let Some(digits) = rest.strip_prefix(['.', ',']) else {
        return ("", rest);
    };
    let count = digits.bytes().take_while(u8::is_ascii_digit).count();
    digits.split_at(count)
}

fn is_offset(text: &str) -> bool {
    let digit = |at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    let hours_and_minutes = text.len() == 6
        && text.starts_with(['+', '-'])
        && text.as_bytes()[3] == b':'
        && [1, 2, 4, 5].into_iter().all(digit);
    text == "Z" || hours_and_minutes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_a_line_is_shown_with_nine_digits_and_its_offset() {
        for (written, shown) in [
            ("2026-11-21T12:00:00Z", "2026-11-21T12:00:00.000000000Z"),
            ("2026-11-21T12:00:00.5Z", "2026-11-21T12:00:00.500000000Z"),
            ("2026-11-21T12:00:00,5Z", "2026-11-21T12:00:00.500000000Z"),
            (
                "2026-11-21T12:00:00.123456789+01:30",
                "2026-11-21T12:00:00.123456789+01:30",
            ),
            ("2026-11-21T12:00:00.12+00:00", "2026-11-21T12:00:00.120000000Z"),
            (
                "2026-11-21T12:00:00.1234567891234Z",
                "2026-11-21T12:00:00.123456789Z",
            ),
        ] {
            let time = LogTime::parse(written.into()).unwrap_or_else(|| panic!("{written}"));
            assert_eq!(time.fixed(), shown);
            assert_eq!(time.at, shown.parse().unwrap());
        }
    }

    #[test]
    fn time_of_the_last_day_that_go_writes_is_the_last_one_known() {
        for text in ["9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59-23:59"] {
            assert_eq!(rfc3339(text), Some(Timestamp::MAX), "{text}");
        }
        let known = "9999-12-30T00:00:00Z";
        assert_eq!(rfc3339(known), known.parse().ok());
        for text in [
            "9999-12-32T00:00:00Z",
            "9999-12-31T24:00:00Z",
            "9999-12-31T23:59:59+99:99",
        ] {
            assert_eq!(rfc3339(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_rfc_3339_is_no_time_of_a_line() {
        for text in [
            "",
            "2026-11-21",
            "2026-11-21T12:00:00",
            "2026-11-21 12:00:00Z",
            "2026-11-21t12:00:00z",
            "2026-11-21T12:00:00.Z",
            "2026-11-21T12:00:60Z",
            "2026-11-21T12:00:00+01",
            "2026-11-21T12:00:00Z[UTC]",
            "2026-13-21T12:00:00Z",
            "2026-11-21T12:00:0éZ",
        ] {
            assert_eq!(LogTime::parse(text.into()), None, "{text:?}");
        }
    }
}
