//! Waits and warnings after failures.

use machinery_runtime::{LogThrottle, Runtime};
use std::time::Duration;

/// The shortest and longest wait after an error, as client-go's reflector has them.
const BACKOFF_MIN: Duration = Duration::from_millis(800);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Quiet time after which the back-off starts from the shortest wait again.
const BACKOFF_RESET: Duration = Duration::from_secs(120);
/// Least time between two warnings of one source, and time for which a resource may be away without one: its watches end
/// before the components that began them see that its definition is gone.
const WARNING_PAUSE: Duration = Duration::from_secs(60);

/// Doubles up to the longest wait, with as much again at random, and forgets after a quiet time.
#[derive(Default)]
pub(super) struct Backoff {
    wait: Duration,
    last: Option<Duration>,
}

impl Backoff {
    pub(super) fn next(&mut self, runtime: &Runtime) -> Duration {
        let now = runtime.monotonic();
        let quiet = self
            .last
            .is_none_or(|last| now.saturating_sub(last) > BACKOFF_RESET);
        self.wait = if quiet {
            BACKOFF_MIN
        } else {
            (self.wait * 2).min(BACKOFF_MAX)
        };
        self.last = Some(now);
        let jitter = runtime.random_u64() % 1000;
        self.wait + self.wait * u32::try_from(jitter).unwrap_or(0) / 1000
    }
}

/// Failures, as far as they are logged.
pub(super) struct Failures {
    /// The first since a round went well.
    pub(super) since: Option<Duration>,
    warnings: LogThrottle,
    /// About objects that cannot be read.
    left_out: LogThrottle,
}

impl Default for Failures {
    fn default() -> Self {
        let throttle = || LogThrottle::new(1, WARNING_PAUSE);
        Self {
            since: None,
            warnings: throttle(),
            left_out: throttle(),
        }
    }
}

impl Failures {
    /// Reports whether this failure is one to warn of.
    pub(super) fn warns(&mut self, is_not_found: bool, now: Duration) -> bool {
        let since = *self.since.get_or_insert(now);
        let is_brief = is_not_found && now.saturating_sub(since) < WARNING_PAUSE;
        !is_brief && self.warnings.should_log(now).is_some()
    }

    /// Reports whether an object that cannot be read is one to warn of.
    pub(super) fn warns_of_object(&self, now: Duration) -> bool {
        self.left_out.should_log(now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_is_told_once_a_minute_and_a_resource_that_is_away_later() {
        let at = Duration::from_secs;
        let mut failures = Failures::default();
        let told: Vec<bool> = [0, 30, 59, 60, 119, 120]
            .map(|now| failures.warns(false, at(now)))
            .into();
        assert_eq!(told, [true, false, false, true, false, true]);
        let mut failures = Failures::default();
        let told: Vec<bool> = [0, 59, 60, 119, 120]
            .map(|now| failures.warns(true, at(now)))
            .into();
        assert_eq!(told, [false, false, true, false, true]);
        failures.since = None;
        assert!(!failures.warns(true, at(500)), "it was there meanwhile");
        let told: Vec<bool> = [0, 59, 60].map(|now| failures.warns_of_object(at(now))).into();
        assert_eq!(told, [true, false, true]);
    }
}
