//! Timestamps and durations: reading them, and their parts.

use super::Function;
use crate::value::timestamp::{MAX_SECONDS, MIN_SECONDS};
use crate::value::{EvalError, Evaluated, Timestamp, Value};
use machinery_schema::leaf::{civil_from_days, days_from_civil, parse_rfc3339};

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "getFullYear" => |_, args| part(args, |own| own.year, None),
        "getMonth" => |_, args| part(args, |own| own.month - 1, None),
        "getDayOfYear" => |_, args| part(args, |own| own.day_of_year, None),
        "getDayOfMonth" => |_, args| part(args, |own| own.day - 1, None),
        "getDate" => |_, args| part(args, |own| own.day, None),
        "getDayOfWeek" => |_, args| part(args, |own| own.week_day, None),
        "getHours" => |_, args| part(args, |own| own.second / 3600, Some(3_600_000_000_000)),
        "getMinutes" => |_, args| part(args, |own| own.second / 60 % 60, Some(60_000_000_000)),
        "getSeconds" => |_, args| part(args, |own| own.second % 60, Some(1_000_000_000)),
        "getMilliseconds" => |_, args| part(args, |own| own.nanos / 1_000_000, Some(1_000_000)),
        _ => return None,
    })
}

/// Parts of a time at a place.
struct Parts {
    year: i64,
    month: i64,
    day: i64,
    day_of_year: i64,
    week_day: i64,
    second: i64,
    nanos: i64,
}

fn part<'a>(args: &[Value<'a>], of: fn(&Parts) -> i64, unit: Option<i64>) -> Option<Evaluated<'a>> {
    let zone = match args {
        [Value::Duration(own)] => return Some(Ok(Value::Int(own / unit?))),
        [Value::Timestamp(_)] => "UTC",
        [Value::Timestamp(_), Value::String(zone)] => zone.as_str(),
        _ => return None,
    };
    let Some(Value::Timestamp(own)) = args.first() else {
        return None;
    };
    Some(offset(*own, zone).map(|offset| Value::Int(of(&parts(*own, offset)))))
}

fn parts(own: Timestamp, offset_seconds: i32) -> Parts {
    let local = Timestamp {
        offset_seconds,
        ..own
    };
    let (days, second) = local.local();
    let (year, month, day) = civil_from_days(days);
    Parts {
        year,
        month,
        day,
        day_of_year: days - days_from_civil(year, 1, 1),
        // The first of January 1970 was a Thursday.
        week_day: (days + 4).rem_euclid(7),
        second,
        nanos: i64::from(own.nanos),
    }
}

/// Seconds east of Greenwich at a time: of a zone by name, or as `+01:30`.
fn offset(own: Timestamp, zone: &str) -> Result<i32, EvalError> {
    if let Some((hours, minutes)) = zone.split_once(':') {
        let number = |text: &str| {
            let quoted = machinery_schema::leaf::go_quote(text);
            let problem = || EvalError::new(format!("strconv.Atoi: parsing {quoted}: invalid syntax"));
            text.parse::<i32>().map_err(|_| problem())
        };
        let (hours, minutes) = (number(hours)?, number(minutes)?);
        if !(0..=59).contains(&minutes) {
            let message = format!("timezone offset minutes out of range [0, 59]: {zone}");
            return Err(EvalError::new(message));
        }
        let negative = zone.starts_with('-');
        let total = hours.saturating_mul(60);
        let total = if negative {
            total.saturating_sub(minutes)
        } else {
            total.saturating_add(minutes)
        };
        return Ok(total.clamp(-100_000, 100_000) * 60);
    }
    if matches!(zone, "" | "UTC" | "Local") {
        return Ok(0);
    }
    let unknown = || EvalError::new(format!("unknown time zone {zone}"));
    let found = jiff::tz::TimeZone::get(zone).map_err(|_| unknown())?;
    let at = jiff::Timestamp::from_second(own.seconds).map_err(|_| unknown())?;
    Ok(found.to_offset(at).seconds())
}

/// Nanoseconds of a duration as Go writes it.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    machinery_schema::leaf::parse_duration(text).ok()
}

/// Reports whether seconds since 1970 are in a year that there is.
pub(crate) fn in_range(seconds: i64) -> bool {
    (MIN_SECONDS..=MAX_SECONDS).contains(&seconds)
}

/// Reports whether a text is a time, also of a year that there is not.
pub(crate) fn is_timestamp(text: &str) -> bool {
    parse_rfc3339(text).is_some()
}

/// A time as RFC 3339 has it.
pub(crate) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let (seconds, nanos) = parse_rfc3339(text)?;
    let offset_seconds = match text.strip_suffix('Z') {
        Some(_) => 0,
        None => {
            let tail = text.get(text.len() - 6..)?;
            let hours: i32 = tail[1..3].parse().ok()?;
            let minutes: i32 = tail[4..6].parse().ok()?;
            let size = hours * 3600 + minutes * 60;
            if tail.starts_with('-') { -size } else { size }
        }
    };
    in_range(seconds).then_some(Timestamp {
        seconds,
        nanos,
        offset_seconds,
    })
}

/// A duration as the OpenAPI format has it: Go's, or numbers with units up to weeks.
pub(crate) fn parse_long_duration(text: &str) -> Option<i64> {
    if let Some(own) = parse_duration(text) {
        return Some(own);
    }
    let (mut rest, mut total) = (text, 0i64);
    let mut any = false;
    while !rest.trim_start().is_empty() {
        rest = rest.trim_start();
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let count: i64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let letters: usize = rest
            .chars()
            .take_while(|own| own.is_alphabetic())
            .map(char::len_utf8)
            .sum();
        total = total.checked_add(count.checked_mul(unit(&rest[..letters])?)?)?;
        rest = &rest[letters..];
        any = true;
    }
    any.then_some(total)
}

fn unit(name: &str) -> Option<i64> {
    const SECOND: i64 = 1_000_000_000;
    Some(match name {
        "ns" | "nano" | "nanos" | "nanosecond" | "nanoseconds" | "nanosec" | "nanosecs" => 1,
        "us" | "µs" | "μs" | "micro" | "micros" | "microsecond" | "microseconds" | "microsec"
        | "microsecs" => 1_000,
        "ms" | "milli" | "millis" | "millisecond" | "milliseconds" | "millisec" | "millisecs" => 1_000_000,
        "s" | "sec" | "secs" | "second" | "seconds" => SECOND,
        "m" | "min" | "mins" | "minute" | "minutes" => 60 * SECOND,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600 * SECOND,
        "d" | "day" | "days" => 86_400 * SECOND,
        "w" | "wk" | "wks" | "week" | "weeks" => 7 * 86_400 * SECOND,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_of_zones_saturate() {
        for (zone, wanted) in [
            ("-2147483648:30", -6_000_000),
            ("2147483647:30", 6_000_000),
            ("-01:30", -5_400),
        ] {
            assert_eq!(offset(Timestamp::utc(0, 0), zone).unwrap(), wanted, "{zone}");
        }
    }
}
