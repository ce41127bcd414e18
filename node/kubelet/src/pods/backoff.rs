//! Backoff of containers that ended and of images whose pull failed.
//!
//! ```text
//! ended  → again at once     (10 s are remembered)
//! ended  → again after 10 s  (20 s are remembered)
//! ended  → again after 20 s  … up to 5 min; ten quiet minutes forget it all
//! ```

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

const INITIAL: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);

/// Delays by key.
#[derive(Debug, Clone, Default)]
pub(crate) struct BackOff {
    entries: HashMap<String, Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    delay: Duration,
    updated: Timestamp,
}

fn between(earlier: Timestamp, later: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(earlier)).unwrap_or_default()
}

impl BackOff {
    /// The delay still in force for something that failed at `since`, and when it ends.
    pub(crate) fn waiting(
        &self,
        key: &str,
        since: Timestamp,
        now: Timestamp,
    ) -> Option<(Duration, Timestamp)> {
        let entry = self.live(key, since)?;
        if between(since, now) >= entry.delay {
            return None;
        }
        Some((entry.delay, since.checked_add(entry.delay).unwrap_or(now)))
    }

    /// Something that failed at `since` is tried again now: the next delay is twice as long.
    pub(crate) fn tried(&mut self, key: &str, since: Timestamp, now: Timestamp) {
        let delay = self
            .live(key, since)
            .map_or(INITIAL, |entry| (entry.delay * 2).min(LONGEST));
        self.entries
            .insert(key.to_string(), Entry { delay, updated: now });
    }

    /// Success: nothing is remembered.
    pub(crate) fn forget(&mut self, key: &str) {
        self.entries.remove(key);
    }

    fn live(&self, key: &str, since: Timestamp) -> Option<Entry> {
        let entry = self.entries.get(key).copied()?;
        // Compared with the end of the last run, not with now: a container that ran for ten minutes has
        // recovered, however long ago it ended.
        (between(entry.updated, since) <= LONGEST * 2).then_some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_and_resets() {
        let at = |second: i64| Timestamp::from_second(1_000_000 + second).unwrap();
        let mut backoff = BackOff::default();
        assert_eq!(backoff.waiting("c", at(0), at(0)), None);
        backoff.tried("c", at(0), at(0));
        assert_eq!(
            backoff.waiting("c", at(1), at(2)),
            Some((Duration::from_secs(10), at(11)))
        );
        assert_eq!(backoff.waiting("c", at(1), at(11)), None);
        backoff.tried("c", at(1), at(11));
        assert_eq!(
            backoff.waiting("c", at(12), at(12)).unwrap().0,
            Duration::from_secs(20)
        );
        assert_eq!(backoff.waiting("c", at(2000), at(2000)), None);
    }
}
