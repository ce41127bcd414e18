//! Dates, times and durations.

use super::{Search, pattern};
use crate::leaf::{parse_duration, parse_rfc3339};
use std::sync::LazyLock;

static TIME: LazyLock<Search> =
    LazyLock::new(|| pattern("^[0-9]{2}:[0-9]{2}:[0-9]{2}(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"));
static PART_OF_DURATION: LazyLock<Search> = LazyLock::new(|| pattern(r"\d+\s*[A-Za-zµ]+"));

pub(super) fn is_date(text: &str) -> bool {
    text.len() == 10 && parse_rfc3339(&format!("{text}T00:00:00Z")).is_some()
}

/// A date and a time, of which what follows another `t` is not looked at, nor the size of the offset.
pub(super) fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    let in_range = |time: &str| time[..2] <= *"23" && time[3..5] <= *"59" && time[6..8] <= *"59";
    is_date(date) && TIME.is_match(time) && in_range(time)
}

/// A duration of Go's, or numbers with words for their units anywhere in the text, one of which is known.
pub(super) fn is_duration(text: &str) -> bool {
    if parse_duration(text).is_ok() {
        return true;
    }
    let mut found = false;
    for part in PART_OF_DURATION.find_all(text) {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        if part[..digits].parse::<i64>().is_err() {
            return false;
        }
        found |= is_unit(part[digits..].trim_start());
    }
    found
}

/// The names of a unit; a longer word may begin with the last.
const UNITS: [&[&str]; 8] = [
    &["ns", "nano"],
    &["us", "µs", "micro"],
    &["ms", "milli"],
    &["s", "sec"],
    &["m", "min"],
    &["h", "hr", "hour"],
    &["d", "day"],
    &["w", "wk", "week"],
];

fn is_unit(word: &str) -> bool {
    let word = word.to_lowercase();
    UNITS.iter().any(|names| {
        let is_longer = names.last().is_some_and(|last| word.starts_with(last));
        is_longer || names.iter().any(|name| name.to_lowercase() == word)
    })
}
