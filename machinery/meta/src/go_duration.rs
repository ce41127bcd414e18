//! Durations as Go writes them: `1h30m0s`, `1.5s`, `-300ms`.

use crate::go_text::go_quote;
use std::time::Duration;

const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Nanoseconds, or `time.ParseDuration`'s sentence.
pub fn parse(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {}", go_quote(text));
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let (value, after) = one(rest, text)?;
        total += value;
        rest = after;
        if total > i128::from(i64::MAX) + i128::from(negative) {
            return Err(invalid());
        }
    }
    i64::try_from(if negative { -total } else { total }).map_err(|_| invalid())
}

/// One number with its unit.
fn one<'a>(text: &'a str, whole_text: &str) -> Result<(i128, &'a str), String> {
    let quoted = || go_quote(whole_text);
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, mut rest) = text.split_at(digits);
    let mut fraction = "";
    if let Some(after) = rest.strip_prefix('.') {
        let count = after.bytes().take_while(u8::is_ascii_digit).count();
        (fraction, rest) = after.split_at(count);
    }
    if whole.is_empty() && fraction.is_empty() {
        return Err(format!("time: invalid duration {}", quoted()));
    }
    let unit_len = rest
        .find(|c: char| c == '.' || c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_len);
    if unit.is_empty() {
        return Err(format!("time: missing unit in duration {}", quoted()));
    }
    let Some((_, size)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(format!(
            "time: unknown unit {} in duration {}",
            go_quote(unit),
            quoted()
        ));
    };
    let number = |text: &str| {
        if text.is_empty() {
            Ok(0)
        } else {
            text.parse::<i64>()
        }
    };
    let whole = number(whole).map_err(|_| format!("time: invalid duration {}", quoted()))?;
    let fraction = &fraction[..fraction.len().min(18)];
    let scale = 10_i128.pow(u32::try_from(fraction.len()).unwrap_or(0));
    let part = i128::from(number(fraction).unwrap_or(0)) * size / scale;
    Ok((i128::from(whole) * size + part, rest))
}

/// The text of Go's `Duration.String`; of what is longer than Go's longest, that one's.
pub fn write(duration: Duration) -> String {
    write_nanos(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}

/// The same without what is below a millisecond.
pub fn write_whole_milliseconds(duration: Duration) -> String {
    let below = Duration::from_nanos(u64::from(duration.subsec_nanos() % 1_000_000));
    write(duration.saturating_sub(below))
}

/// The text of nanoseconds, which may be below zero.
pub fn write_nanos(nanos: i64) -> String {
    let size = nanos.unsigned_abs();
    let sign = if nanos < 0 { "-" } else { "" };
    let (unit, scale) = match size {
        0 => return "0s".to_owned(),
        1..1_000 => ("ns", 1),
        1_000..1_000_000 => ("µs", 1_000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        _ => return format!("{sign}{}", long(size)),
    };
    format!("{sign}{}{unit}", decimal(size, scale))
}

fn long(size: u64) -> String {
    let seconds = size / 1_000_000_000;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let rest = decimal(size % 60_000_000_000, 1_000_000_000);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

/// `size / scale` with as many decimals as there are.
fn decimal(size: u64, scale: u64) -> String {
    let (whole, part) = (size / scale, size % scale);
    if part == 0 {
        return whole.to_string();
    }
    let width = scale.ilog10() as usize;
    let digits = format!("{part:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Go's own table (`durationTests` of time/time_test.go).
    const OF_GO: [(i64, &str); 11] = [
        (0, "0s"),
        (1, "1ns"),
        (1_100, "1.1µs"),
        (2_200_000, "2.2ms"),
        (3_300_000_000, "3.3s"),
        (245_000_000_000, "4m5s"),
        (245_001_000_000, "4m5.001s"),
        (18_367_001_000_000, "5h6m7.001s"),
        (480_000_000_001, "8m0.000000001s"),
        (i64::MAX, "2562047h47m16.854775807s"),
        (i64::MIN, "-2562047h47m16.854775808s"),
    ];

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for (nanos, expected) in OF_GO {
            assert_eq!(write_nanos(nanos), expected);
        }
        assert_eq!(write(Duration::from_millis(62_500)), "1m2.5s");
        assert_eq!(write(Duration::MAX), "2562047h47m16.854775807s");
        let micros = |micros| write_whole_milliseconds(Duration::from_micros(micros));
        assert_eq!([micros(999), micros(1_015_999)], ["0s", "1.015s"]);
    }

    #[test]
    fn durations_that_go_writes_are_read() {
        for (nanos, text) in OF_GO {
            assert_eq!(parse(text), Ok(nanos));
        }
    }
}
