//! The schedule of a CronJob: its text, as `ParseStandard` of `robfig/cron` v3 reads and refuses it, and the times that it names.
//!
//! The API server validates with it, and the controller asks it for times, so that no schedule is taken that cannot run.

mod times;

#[cfg(test)]
mod tests;

use jiff::{SignedDuration, tz::TimeZone};
use machinery_schema::leaf::parse_duration;

/// The times at which a CronJob runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedule {
    /// At minutes of the calendar.
    Calendar(Calendar),
    /// Again and again after so many whole seconds, at least one.
    Every(SignedDuration),
}

/// The minutes of the calendar that a schedule names, one bit a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calendar {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    zone: TimeZone,
}

/// The bit of a field that was written `*` or `?`: where one of the two fields of days has it, both have to match.
const STAR: u64 = 1 << 63;

/// One of the five fields: its lowest and highest number, and names for numbers from the lowest on.
struct Field {
    min: u64,
    max: u64,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [Field; 5] = [
    Field::numbers(0, 59),
    Field::numbers(0, 23),
    Field::numbers(1, 31),
    Field::named(1, 12, &MONTHS),
    Field::named(0, 6, &DAYS),
];
/// The fields that each descriptor stands for.
const DESCRIPTORS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

impl Schedule {
    /// Reads a schedule; its times are of UTC unless it names a zone. Fails with the words of upstream's parser.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("empty spec string".to_owned());
        }
        if !text.starts_with("TZ=") && !text.starts_with("CRON_TZ=") {
            return Self::parse_in(text, TimeZone::UTC);
        }
        let (zone, rest) = text
            .split_once(' ')
            .ok_or("invalid schedule format: runtime error: slice bounds out of range [:-1]")?;
        let name = zone.split_once('=').map_or("", |(_, zone)| zone);
        let zone = time_zone(name).map_err(|error| format!("provided bad location {name}: {error}"))?;
        Self::parse_in(rest.trim(), zone)
    }

    /// Reads a schedule that names no zone, in this one.
    pub fn parse_in(text: &str, zone: TimeZone) -> Result<Self, String> {
        if let Some(duration) = text.strip_prefix("@every ") {
            let parsed = parse_duration(duration);
            let every = parsed.map_err(|error| format!("failed to parse duration {text}: {error}"))?;
            return Ok(Self::every(every));
        }
        if !text.starts_with('@') {
            return Calendar::parse(text, zone).map(Self::Calendar);
        }
        let known = DESCRIPTORS.iter().find(|(name, _)| *name == text);
        let (_, fields) = known.ok_or_else(|| format!("unrecognized descriptor: {text}"))?;
        Calendar::parse(fields, zone).map(Self::Calendar)
    }

    /// A pause of whole seconds, at least one.
    fn every(nanoseconds: i64) -> Self {
        let seconds = SignedDuration::from_nanos(nanoseconds).as_secs();
        Self::Every(SignedDuration::from_secs(seconds.max(1)))
    }
}

impl Calendar {
    fn parse(text: &str, zone: TimeZone) -> Result<Self, String> {
        let texts: Vec<&str> = text.split_whitespace().collect();
        if texts.len() != FIELDS.len() {
            return Err(format!(
                "expected exactly {} fields, found {}: [{}]",
                FIELDS.len(),
                texts.len(),
                texts.join(" ")
            ));
        }
        let mut bits = [0; FIELDS.len()];
        for ((text, field), bits) in texts.iter().zip(&FIELDS).zip(&mut bits) {
            for range in text.split(',').filter(|range| !range.is_empty()) {
                *bits |= field.bits(range)?;
            }
        }
        let [minutes, hours, days, months, weekdays] = bits;
        Ok(Self {
            minutes,
            hours,
            days,
            months,
            weekdays,
            zone,
        })
    }
}

/// The time zone of a name. Fails as Go does where it knows none.
pub fn time_zone(name: &str) -> Result<TimeZone, String> {
    if matches!(name, "" | "UTC" | "Local") {
        return Ok(TimeZone::UTC);
    }
    let known = TimeZone::get(name).ok();
    known
        .filter(|zone| zone.iana_name() == Some(name))
        .ok_or_else(|| format!("unknown time zone {name}"))
}

impl Field {
    const fn numbers(min: u64, max: u64) -> Self {
        Self::named(min, max, &[])
    }

    const fn named(min: u64, max: u64, names: &'static [&'static str]) -> Self {
        Self { min, max, names }
    }

    /// The bits of `*`, `2`, `2-5` or `mon-fri`, each perhaps with `/step`.
    fn bits(&self, text: &str) -> Result<u64, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let (start, mut end) = self.ends(parts[0], text)?;
        let is_star = matches!(parts[0].split('-').next(), Some("*" | "?"));
        let step = match parts[..] {
            [_] => 1,
            [range, step] => {
                let step = number(step)?;
                if !range.contains('-') {
                    end = self.max;
                }
                step
            }
            _ => return Err(format!("too many slashes: {text}")),
        };
        let (min, max) = (self.min, self.max);
        if start < min {
            return Err(format!(
                "beginning of range ({start}) below minimum ({min}): {text}"
            ));
        }
        if end > max {
            return Err(format!("end of range ({end}) above maximum ({max}): {text}"));
        }
        if start > end {
            return Err(format!(
                "beginning of range ({start}) beyond end of range ({end}): {text}"
            ));
        }
        if step == 0 {
            return Err(format!("step of range should be a positive number: {text}"));
        }
        let numbers = (start..=end).filter(|number| (number - start).is_multiple_of(step));
        let star = if is_star && step == 1 { STAR } else { 0 };
        Ok(numbers.fold(star, |bits, number| bits | 1 << number))
    }

    fn ends(&self, range: &str, text: &str) -> Result<(u64, u64), String> {
        let ends: Vec<&str> = range.split('-').collect();
        if matches!(ends[0], "*" | "?") {
            return Ok((self.min, self.max));
        }
        let start = self.value(ends[0])?;
        match ends[..] {
            [_] => Ok((start, start)),
            [_, end] => Ok((start, self.value(end)?)),
            _ => Err(format!("too many hyphens: {text}")),
        }
    }

    fn value(&self, text: &str) -> Result<u64, String> {
        let name = text.to_ascii_lowercase();
        match self.names.iter().position(|own| *own == name) {
            Some(at) => Ok(self.min + at as u64),
            None => number(text),
        }
    }
}

/// Reads a number as Go's `strconv.Atoi` does, with its errors.
fn number(text: &str) -> Result<u64, String> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let complaint = |why: &str| {
        let quoted = machinery_schema::leaf::go_quote(text);
        format!("failed to parse int from {text}: strconv.Atoi: parsing {quoted}: {why}")
    };
    match text.parse::<i64>() {
        Ok(value) => {
            u64::try_from(value).map_err(|_| format!("negative number ({value}) not allowed: {text}"))
        }
        Err(error) if matches!(error.kind(), PosOverflow | NegOverflow) => {
            Err(complaint("value out of range"))
        }
        Err(_) => Err(complaint("invalid syntax")),
    }
}
