//! The time that a schedule named last, and how many before it were missed. Pure.

use crate::views::{CronJobView, time};
use jiff::{SignedDuration, Timestamp};
use machinery_semantics::cron_schedule::Schedule;

/// Missed times beyond which the controller warns.
const FEW: i64 = 100;
/// Added to waits, so that a clock that is a little behind is past the time.
pub(super) const PADDING: SignedDuration = SignedDuration::from_millis(100);

/// The number of missed times, roughly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missed {
    None,
    Few,
    Many,
}

/// The last time that was missed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MostRecent {
    /// Times after this one count.
    pub(super) earliest: Timestamp,
    /// The last time of the schedule that is not after now.
    pub(super) time: Option<Timestamp>,
    pub(super) missed: Missed,
}

/// The last time that a Job should have been made for, as upstream finds it; `last` is `status.lastScheduleTime`. With its deadline, times before it do not
/// count. Fails where the schedule names no time twice.
pub(super) fn most_recent(
    cron_job: &CronJobView,
    last: Option<&str>,
    now: Timestamp,
    schedule: &Schedule,
    with_deadline: bool,
) -> Result<MostRecent, &'static str> {
    const TOO_CLOSE: &str = "time difference between two schedules is less than 1 second";
    let mut out = MostRecent {
        earliest: earliest(cron_job, last, now, with_deadline),
        time: None,
        missed: Missed::None,
    };
    let first = schedule.next(out.earliest).ok_or(TOO_CLOSE)?;
    if now < first {
        return Ok(out);
    }
    let second = schedule.next(first).ok_or(TOO_CLOSE)?;
    if now < second {
        out.time = Some(first);
        return Ok(out);
    }
    let between = second.as_second() - first.as_second();
    if between < 1 {
        return Err(TOO_CLOSE);
    }
    let missed = now.duration_since(first).as_secs() / between + 1;
    out.missed = if missed > FEW { Missed::Many } else { Missed::Few };
    // A step back from the last guess, as times need not be equally far from each other.
    let from = first.checked_add(SignedDuration::from_secs((missed - 2) * between));
    out.time = last_before(schedule, from.unwrap_or(first), now);
    Ok(out)
}

fn earliest(cron_job: &CronJobView, last: Option<&str>, now: Timestamp, with_deadline: bool) -> Timestamp {
    let earliest = time(last).unwrap_or(cron_job.created);
    let deadline = cron_job
        .starting_deadline_seconds
        .filter(|_| with_deadline)
        .and_then(|seconds| now.checked_sub(SignedDuration::from_secs(seconds)).ok());
    deadline.map_or(earliest, |deadline| deadline.max(earliest))
}

/// The last time after `from` that is not after `now`. Halves the span instead of counting its minutes, of which a
/// schedule such as `* * * 1-6 *` has a quarter of a million.
fn last_before(schedule: &Schedule, from: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let next = |after: Timestamp| schedule.next(after).filter(|next| *next <= now);
    let mut last = next(from)?;
    if let Schedule::Every(pause) = schedule {
        let more = now.duration_since(last).as_secs() / pause.as_secs();
        return last
            .checked_add(SignedDuration::from_secs(more * pause.as_secs()))
            .ok();
    }
    let (mut low, mut high) = (last.as_second(), now.as_second());
    while low < high {
        // The upper half's first second, so that each turn makes the span smaller.
        let middle = low + (high - low).div_euclid(2);
        match Timestamp::from_second(middle).ok().and_then(next) {
            Some(later) => {
                last = later;
                low = later.as_second();
            }
            None => high = middle,
        }
    }
    Some(last)
}

/// The time until the next one; none where the schedule has none.
pub(super) fn wait(
    cron_job: &CronJobView,
    last: Option<&str>,
    now: Timestamp,
    schedule: &Schedule,
) -> Option<SignedDuration> {
    let from = match most_recent(cron_job, last, now, schedule, false) {
        Ok(MostRecent { time: Some(time), .. }) => time,
        Ok(MostRecent {
            earliest,
            missed: Missed::None,
            ..
        }) => earliest,
        _ => now,
    };
    let next = schedule.next(from)?.checked_add(PADDING).ok()?;
    Some(next.duration_since(now))
}
