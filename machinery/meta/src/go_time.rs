//! Times as Go's `time.Parse(time.RFC3339, …)` reads them; the calendar library alone takes many other forms.

use jiff::Timestamp;

/// Length of `2006-01-02T15:04:05`.
const SECONDS: usize = 19;
/// Digits of a nanosecond; Go drops those behind them.
const NANOS: usize = 9;

/// The time in a text of RFC 3339; `None` for any other form.
pub fn parse(text: &str) -> Option<Timestamp> {
    if !text.is_ascii() || text.len() <= SECONDS {
        return None;
    }
    let (civil, rest) = text.split_at(SECONDS);
    if !has_form(civil, "dddd-dd-ddTdd:dd:dd") || civil.as_bytes()[17] > b'5' {
        return None;
    }
    let (fraction, zone) = match rest.strip_prefix(['.', ',']) {
        None => ("0", rest),
        Some(rest) => rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count()),
    };
    if fraction.is_empty() || !is_zone(zone) {
        return None;
    }
    let fraction = &fraction[..fraction.len().min(NANOS)];
    format!("{civil}.{fraction}{zone}").parse().ok()
}

/// Compares a text with its form, where `d` is a digit.
fn has_form(text: &str, form: &str) -> bool {
    let is_like = |(byte, like): (u8, u8)| match like {
        b'd' => byte.is_ascii_digit(),
        like => byte == like,
    };
    text.len() == form.len() && text.bytes().zip(form.bytes()).all(is_like)
}

fn is_zone(text: &str) -> bool {
    let hours = || text.get(1..3).and_then(|hours| hours.parse::<u8>().ok());
    text == "Z"
        || (has_form(text, "+dd:dd") || has_form(text, "-dd:dd")) && hours().is_some_and(|hours| hours <= 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let found = parse(text).map(|time| time.to_string());
        assert_eq!(found.as_deref(), expected, "{text}");
    }

    #[test]
    fn only_rfc_3339_is_read() {
        let time = "2027-01-01T00:00:00Z";
        check(time, Some(time));
        check("2027-01-01T01:00:00+01:00", Some(time));
        check("2027-01-01T00:00:00.500Z", Some("2027-01-01T00:00:00.5Z"));
        check(
            "2027-01-01T00:00:00.1234567891Z",
            Some("2027-01-01T00:00:00.123456789Z"),
        );
        for other in [
            "",
            "2027-01-01",
            "2027-01-01T00:00Z",
            "2027-01-01 00:00:00Z",
            "2027-01-01t00:00:00z",
            "20270101T000000Z",
            "2027-01-01T00:00:00",
            "2027-01-01T00:00:00.Z",
            "2027-01-01T00:00:60Z",
            "2027-02-30T00:00:00Z",
            "2027-01-01T00:00:00+01",
            "2027-01-01T00:00:00+25:00",
            "2027-01-01T00:00:00Z[UTC]",
            "2027-01-01T00:00:00ä",
        ] {
            check(other, None);
        }
    }
}
