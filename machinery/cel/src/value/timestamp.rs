//! Points in time, as Go's `time.Time` with its offset.

use std::cmp::Ordering;
use std::fmt;

/// First second of the year 1, and last of the year 9999.
pub(crate) const MIN_SECONDS: i64 = -62_135_596_800;
pub(crate) const MAX_SECONDS: i64 = 253_402_300_799;

/// A point in time in the years 1 to 9999.
#[derive(Debug, Clone, Copy)]
pub struct Timestamp {
    /// Since 1970, rounded down.
    pub seconds: i64,
    pub nanos: u32,
    /// East of Greenwich; how the time is written, no part of what it is.
    pub offset_seconds: i32,
}

impl Timestamp {
    pub fn utc(seconds: i64, nanos: u32) -> Self {
        Self {
            seconds,
            nanos,
            offset_seconds: 0,
        }
    }

    pub(crate) fn is_zero(self) -> bool {
        self.seconds == MIN_SECONDS && self.nanos == 0
    }

    pub(crate) fn nanos_total(self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanos)
    }

    /// The time after a duration; none outside of the years that there are.
    pub(crate) fn after(self, nanos: i128) -> Option<Self> {
        let total = self.nanos_total() + nanos;
        let seconds = i64::try_from(total.div_euclid(1_000_000_000)).ok()?;
        let nanos = u32::try_from(total.rem_euclid(1_000_000_000)).ok()?;
        (MIN_SECONDS..=MAX_SECONDS).contains(&seconds).then_some(Self {
            seconds,
            nanos,
            offset_seconds: self.offset_seconds,
        })
    }

    /// Days since 1970 and seconds of the day, where the time is written.
    pub(crate) fn local(self) -> (i64, i64) {
        let own = self.seconds + i64::from(self.offset_seconds);
        (own.div_euclid(86_400), own.rem_euclid(86_400))
    }
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Timestamp {}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, second) = self.local();
        let (year, month, day) = machinery_schema::leaf::civil_from_days(days);
        let (hour, minute) = (second / 3600, second / 60 % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}",
            second % 60
        )?;
        if self.nanos > 0 {
            let fraction = format!("{:09}", self.nanos);
            write!(f, ".{}", fraction.trim_end_matches('0'))?;
        }
        if self.offset_seconds == 0 {
            return f.write_str("Z");
        }
        let minutes = self.offset_seconds.abs() / 60;
        let sign = if self.offset_seconds < 0 { '-' } else { '+' };
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}
