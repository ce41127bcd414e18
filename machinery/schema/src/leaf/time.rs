//! RFC 3339 times as Go reads and writes them, without a calendar library: days since 1970 and back.

const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const LAYOUT_MICRO: &str = "2006-01-02T15:04:05.000000Z07:00";
const DAY: i64 = 86_400;

/// `metav1.Time`: UTC, seconds.
pub(super) fn canonical(text: &str) -> Result<Option<String>, String> {
    let bytes = text.as_bytes();
    // The form clients send back, digits at their places, needs no parsing when its parts are in range.
    let (seconds, _) = parse_rfc3339(text).ok_or_else(|| refusal(text, LAYOUT))?;
    if bytes.len() == 20 && bytes[19] == b'Z' {
        return Ok(None);
    }
    Ok(Some(write_time(seconds)))
}

/// `metav1.MicroTime`: UTC, microseconds.
pub(super) fn canonical_micro(text: &str) -> Result<Option<String>, String> {
    let (seconds, nanos) = parse_rfc3339(text)
        .filter(|_| has_micros(text))
        .ok_or_else(|| refusal(text, LAYOUT_MICRO))?;
    let canonical = write_micro_time(seconds, nanos / 1000);
    Ok((canonical != text).then_some(canonical))
}

/// Go's layout requires exactly six digits.
fn has_micros(text: &str) -> bool {
    let fraction = text.as_bytes().get(19..).unwrap_or_default();
    let digits = fraction.iter().skip(1).take_while(|byte| byte.is_ascii_digit());
    fraction.first() == Some(&b'.') && digits.count() == 6
}

/// Go names the first part of the text that does not fit.
fn refusal(text: &str, layout: &str) -> String {
    let quoted = super::go_quote(text);
    let parts = [
        (0, 4, "2006"),
        (4, 5, "-"),
        (5, 7, "01"),
        (7, 8, "-"),
        (8, 10, "02"),
        (10, 11, "T"),
        (11, 13, "15"),
        (13, 14, ":"),
        (14, 16, "04"),
        (16, 17, ":"),
        (17, 19, "05"),
    ];
    for (from, to, part) in parts {
        let fits = text.get(from..to).is_some_and(|own| {
            own.bytes().zip(part.bytes()).all(|(own, part)| {
                if part.is_ascii_digit() {
                    own.is_ascii_digit()
                } else {
                    own == part
                }
            })
        });
        if !fits {
            let rest = super::go_quote(text.get(from..).unwrap_or_default());
            return format!("parsing time {quoted} as \"{layout}\": cannot parse {rest} as \"{part}\"");
        }
    }
    if let Some(what) = out_of_range(text) {
        return format!("parsing time {quoted}: {what} out of range");
    }
    let fraction = text.as_bytes().get(19..).unwrap_or_default();
    let micros = fraction
        .iter()
        .skip(1)
        .take(6)
        .filter(|byte| byte.is_ascii_digit());
    let whole = fraction.first() == Some(&b'.') && micros.count() == 6;
    let (from, part) = match layout {
        LAYOUT_MICRO if whole => (26, "Z07:00"),
        LAYOUT_MICRO => (19, ".000000"),
        // Go takes a fraction where the layout has none.
        _ => (19 + fraction_length(fraction), "Z07:00"),
    };
    let rest = text.get(from..).unwrap_or_default();
    let zone = if part == "Z07:00" { zone_length(rest) } else { 0 };
    if zone > 0 && zone < rest.len() {
        let extra = super::go_quote(&rest[zone..]);
        return format!("parsing time {quoted}: extra text: {extra}");
    }
    let rest = super::go_quote(rest);
    format!("parsing time {quoted} as \"{layout}\": cannot parse {rest} as \"{part}\"")
}

/// Bytes of a fraction of a second: a point and digits.
fn fraction_length(text: &[u8]) -> usize {
    let digits = text
        .iter()
        .skip(1)
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    match text.first() {
        Some(b'.') if digits > 0 => digits + 1,
        _ => 0,
    }
}

/// Bytes of the zone at the beginning of a text; none where there is no zone.
fn zone_length(text: &str) -> usize {
    match text.as_bytes() {
        [b'Z', ..] => 1,
        [b'+' | b'-', a, b, b':', c, d, ..] if [a, b, c, d].iter().all(|own| own.is_ascii_digit()) => 6,
        _ => 0,
    }
}

fn out_of_range(text: &str) -> Option<&'static str> {
    let number = |from: usize, to: usize| {
        text.get(from..to)
            .and_then(|own| own.parse::<i64>().ok())
            .unwrap_or(0)
    };
    let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
    if !(1..=12).contains(&month) {
        Some("month")
    } else if day < 1 || day > days_in_month(year, month) {
        Some("day")
    } else if number(11, 13) > 23 {
        Some("hour")
    } else if number(14, 16) > 59 {
        Some("minute")
    } else if number(17, 19) > 59 {
        Some("second")
    } else {
        None
    }
}

/// Seconds since 1970 and nanoseconds of an RFC 3339 time.
pub fn parse_rfc3339(text: &str) -> Option<(i64, u32)> {
    // Go reads an hour of one digit.
    if text.as_bytes().get(12) == Some(&b':')
        && let Some((date, time)) = text.split_at_checked(11)
    {
        return parse_rfc3339(&format!("{date}0{time}"));
    }
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
        bytes.get(from..to)?.iter().try_fold(0, |sum, byte| {
            byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0'))
        })
    };
    let is = |at: usize, byte: u8| bytes.get(at) == Some(&byte);
    let marks = is(4, b'-') && is(7, b'-') && is(10, b'T') && is(13, b':') && is(16, b':');
    if !marks {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let in_range = (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !in_range {
        return None;
    }
    let (nanos, rest) = fraction(&text[19..])?;
    let offset = offset(rest)?;
    let seconds = days_from_civil(year, month, day) * DAY + hour * 3600 + minute * 60 + second - offset;
    Some((seconds, nanos))
}

/// `.123` in nanoseconds, and what follows.
fn fraction(text: &str) -> Option<(u32, &str)> {
    let Some(digits) = text.strip_prefix(['.', ',']) else {
        return Some((0, text));
    };
    let count = digits.bytes().take_while(u8::is_ascii_digit).count();
    if count == 0 {
        return None;
    }
    let mut nanos = 0;
    for at in 0..9 {
        let digit = if at < count {
            u32::from(digits.as_bytes()[at] - b'0')
        } else {
            0
        };
        nanos = nanos * 10 + digit;
    }
    Some((nanos, &digits[count..]))
}

/// `Z`, `+02:00`, `-07:00` in seconds.
fn offset(text: &str) -> Option<i64> {
    if text == "Z" {
        return Some(0);
    }
    let bytes = text.as_bytes();
    if bytes.len() != 6 || bytes[3] != b':' {
        return None;
    }
    let number = |from: usize, to: usize| {
        text.get(from..to)
            .filter(|own| own.bytes().all(|b| b.is_ascii_digit()))
    };
    let hours: i64 = number(1, 3)?.parse().ok()?;
    let minutes: i64 = number(4, 6)?.parse().ok()?;
    let size = hours * 3600 + minutes * 60;
    match bytes[0] {
        _ if hours > 24 || minutes > 59 => None,
        b'+' => Some(size),
        b'-' => Some(-size),
        _ => None,
    }
}

/// `2006-01-02T15:04:05Z` of seconds since 1970.
pub fn write_time(seconds: i64) -> String {
    let (year, month, day) = civil_from_days(seconds.div_euclid(DAY));
    let rest = seconds.rem_euclid(DAY);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// `2006-01-02T15:04:05.000000Z`.
pub fn write_micro_time(seconds: i64, micros: u32) -> String {
    let mut text = write_time(seconds);
    text.pop();
    format!("{text}.{micros:06}Z")
}

/// Days since 1970-01-01 of a date in the proleptic Gregorian calendar.
pub fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day is their last.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of days since 1970-01-01.
pub fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let next = if month == 12 {
        (year + 1, 1)
    } else {
        (year, month + 1)
    };
    days_from_civil(next.0, next.1, 1) - days_from_civil(year, month, 1)
}
