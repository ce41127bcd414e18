//! The times of a schedule. Its work is bounded whatever the schedule says: five years of days, a day of hours, an hour of
//! minutes.

use super::{Calendar, STAR, Schedule};
use jiff::{RoundMode, SignedDuration, Timestamp, TimestampRound, Unit, Zoned};

/// Years in which a time has to be found; a schedule that names none in so many names none at all.
const YEARS: i16 = 5;

impl Schedule {
    /// The first time after this one; none where there is none within five years.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Every(pause) => whole(after, Unit::Second)?.checked_add(*pause).ok(),
            Self::Calendar(calendar) => calendar.next(after),
        }
    }
}

impl Calendar {
    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        // Nothing but commas names no minute, hour or month.
        if self.minutes == 0 || self.hours == 0 || self.months == 0 {
            return None;
        }
        let minute = whole(after, Unit::Minute)?;
        let mut at = minute
            .checked_add(SignedDuration::from_mins(1))
            .ok()?
            .to_zoned(self.zone.clone());
        let last = at.year().saturating_add(YEARS);
        while at.year() <= last {
            at = match self.first_mismatch(&at) {
                None => return Some(at.timestamp()),
                Some(Unit::Month) => at.last_of_month().and_then(|day| day.tomorrow()?.start_of_day()),
                Some(Unit::Day) => at.tomorrow().and_then(|day| day.start_of_day()),
                // Hours and minutes are those that pass, so that one that a change of clocks repeats counts twice.
                Some(Unit::Hour) => at.checked_add(SignedDuration::from_mins(60 - i64::from(at.minute()))),
                Some(_) => at.checked_add(SignedDuration::from_mins(1)),
            }
            .ok()?;
        }
        None
    }

    /// The largest unit of a time that the schedule does not name.
    fn first_mismatch(&self, at: &Zoned) -> Option<Unit> {
        let has = |bits: u64, number: i8| bits & (1 << number) != 0;
        let day = has(self.days, at.day());
        let weekday = has(self.weekdays, at.weekday().to_sunday_zero_offset());
        let both = (self.days | self.weekdays) & STAR != 0;
        match () {
            () if !has(self.months, at.month()) => Some(Unit::Month),
            () if (both && !(day && weekday)) || !(day || weekday) => Some(Unit::Day),
            () if !has(self.hours, at.hour()) => Some(Unit::Hour),
            () if !has(self.minutes, at.minute()) => Some(Unit::Minute),
            () => None,
        }
    }
}

/// A time without what is less than this unit.
fn whole(at: Timestamp, unit: Unit) -> Option<Timestamp> {
    let rounding = TimestampRound::new().smallest(unit).mode(RoundMode::Floor);
    at.round(rounding).ok()
}
