//! The text of a CronJob's schedule, and why one cannot be read: in the words of `robfig/cron` v3, `ParseStandard`.

use machinery_schema::leaf::parse_duration;

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
const DESCRIPTORS: [&str; 7] = [
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
];

/// The error with which upstream's parser refuses the schedule.
pub(super) fn check(text: &str) -> Result<(), String> {
    let mut schedule = text;
    if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
        let (zone, rest) = text
            .split_once(' ')
            .ok_or("invalid schedule format: runtime error: slice bounds out of range [:-1]")?;
        let zone = zone.split_once('=').map_or("", |(_, zone)| zone);
        check_zone(zone).map_err(|error| format!("provided bad location {zone}: {error}"))?;
        schedule = rest.trim();
    }
    if schedule.starts_with('@') {
        return check_descriptor(schedule);
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!(
            "expected exactly {} fields, found {}: [{}]",
            FIELDS.len(),
            fields.len(),
            fields.join(" ")
        ));
    }
    let both = fields.iter().zip(&FIELDS);
    let mut ranges = both.flat_map(|(text, field)| text.split(',').map(move |range| (range, field)));
    ranges.try_for_each(|(range, field)| match range {
        "" => Ok(()),
        range => field.check(range),
    })
}

/// The error with which Go refuses the time zone.
pub(super) fn check_zone(name: &str) -> Result<(), String> {
    let known = matches!(name, "" | "UTC" | "Local")
        || jiff::tz::TimeZone::get(name).is_ok_and(|zone| zone.iana_name() == Some(name));
    known
        .then_some(())
        .ok_or_else(|| format!("unknown time zone {name}"))
}

fn check_descriptor(text: &str) -> Result<(), String> {
    if let Some(duration) = text.strip_prefix("@every ") {
        let parsed = parse_duration(duration).map(drop);
        return parsed.map_err(|error| format!("failed to parse duration {text}: {error}"));
    }
    match DESCRIPTORS.contains(&text) {
        true => Ok(()),
        false => Err(format!("unrecognized descriptor: {text}")),
    }
}

impl Field {
    const fn numbers(min: u64, max: u64) -> Self {
        Self::named(min, max, &[])
    }

    const fn named(min: u64, max: u64, names: &'static [&'static str]) -> Self {
        Self { min, max, names }
    }

    /// `*`, `2`, `2-5` or `mon-fri`, each perhaps with `/step`.
    fn check(&self, text: &str) -> Result<(), String> {
        let parts: Vec<&str> = text.split('/').collect();
        let (start, mut end) = self.ends(parts[0], text)?;
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
        Ok(())
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

/// As Go's `strconv.Atoi` reads and complains.
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

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn cron_schedule_errors_match_upstream() {
        let cases = [
            ("* * * * ?", ""),
            ("*/5,30-40/2 0 1-15 JAN-mar mon", ""),
            ("@every 1h30m", ""),
            ("@hourly", ""),
            ("CRON_TZ=Europe/Oslo 0 4 * * *", ""),
            ("5/10 * * * ,", ""),
            ("bad", "expected exactly 5 fields, found 1: [bad]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            (
                "5-2 * * * *",
                "beginning of range (5) beyond end of range (2): 5-2",
            ),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            (
                "* * * * funday",
                "failed to parse int from funday: strconv.Atoi: parsing \"funday\": invalid syntax",
            ),
            ("@often", "unrecognized descriptor: @often"),
            (
                "@every day",
                "failed to parse duration @every day: time: invalid duration \"day\"",
            ),
            (
                "TZ=Nowhere * * * * *",
                "provided bad location Nowhere: unknown time zone Nowhere",
            ),
            (
                "TZ=UTC",
                "invalid schedule format: runtime error: slice bounds out of range [:-1]",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(check(text).err().unwrap_or_default(), expected, "{text}");
        }
    }

    #[test]
    fn cron_schedule_fuzz_never_panics() {
        let good = ["*/5,30-40/2 0 1-15 JAN-mar mon", "CRON_TZ=Europe/Oslo @every 1h"];
        // The first zone reads the index of all zones, once.
        check(good[1]).unwrap();
        machinery_fuzz::fuzz_built(good, built, |input| {
            let text = String::from_utf8_lossy(input);
            let said = machinery_fuzz::in_proportion(input, 64, || check(&text));
            let said = said.err().unwrap_or_default();
            assert!(said.len() <= 8 * text.len() + 256, "{} bytes", said.len());
        });
    }

    /// Fields of many ranges, ranges of many parts, long numbers and zones.
    fn built(random: &mut machinery_fuzz::Random) -> Vec<u8> {
        let mut text = match random.below(6) {
            0 => format!("TZ={} ", random.name()),
            1 => format!("CRON_TZ=Europe/{} ", "Oslo/".repeat(random.count())),
            2 => return format!("@every {}", "9h".repeat(random.count())).into_bytes(),
            _ => String::new(),
        };
        let fields = if random.below(4) > 0 { 5 } else { random.count() };
        for _ in 0..fields {
            let part = match random.below(6) {
                0 => "*".to_owned(),
                1 => "9".repeat(random.count()),
                2 => "1-".repeat(random.count()),
                3 => "1/".repeat(random.count()),
                4 => random
                    .pick(&["mon-fri", "jan", "?", "0-59/61", "-1", "5-2"])
                    .to_owned(),
                _ => random.name(),
            };
            let ranges = vec![part; random.count().max(1)].join(",");
            text.push_str(&ranges);
            text.push_str(random.pick(&[" ", "  ", "\t", "\u{a0}"]));
            if text.len() > 1 << 16 {
                break;
            }
        }
        text.into_bytes()
    }
}
