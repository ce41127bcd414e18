//! Recommendations and changes of the past, by which an autoscaler is slowed down. Pure.

use super::object::Rules;
use std::time::Duration;

/// Entries of each kind; a sync period of 15 s within the longest window of an hour needs 240.
const MAX_ENTRIES: usize = 1_000;

/// The past of one autoscaler. Times are of the monotonic clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct History {
    recommendations: Vec<(Duration, i32)>,
    ups: Changes,
    downs: Changes,
    /// The size that was requested last, for metrics.
    pub(super) desired: Option<i32>,
}

/// Changes in one direction, with how many replicas each added or removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Changes(Vec<(Duration, i32)>);

impl History {
    /// Begins with the present size.
    pub(super) fn begin(&mut self, replicas: i32, now: Duration) {
        if self.recommendations.is_empty() {
            self.recommendations.push((now, replicas));
        }
    }

    /// Recommendations that are not older than `window` by the clock's `now`.
    pub(super) fn within(&self, window: Duration, now: Duration) -> impl Iterator<Item = i32> {
        let young = move |at: &Duration| now.saturating_sub(*at) <= window;
        let young = self.recommendations.iter().filter(move |(at, _)| young(at));
        young.map(|(_, replicas)| *replicas)
    }

    /// The same without those that are exactly so old, as windows of behaviors have it.
    pub(super) fn younger(&self, window: Duration, now: Duration) -> impl Iterator<Item = i32> {
        let young = move |at: &Duration| now.saturating_sub(*at) < window;
        let young = self.recommendations.iter().filter(move |(at, _)| young(at));
        young.map(|(_, replicas)| *replicas)
    }

    /// Notes a recommendation, in the place of one that no window of this length has.
    pub(super) fn recommend(&mut self, replicas: i32, window: Duration, now: Duration) {
        let all = &mut self.recommendations;
        let same = all.iter().position(|(_, own)| *own == replicas);
        let old = || all.iter().rposition(|(at, _)| now.saturating_sub(*at) > window);
        // The same number counts until its last time.
        match same.or_else(old) {
            Some(place) => all[place] = (now, replicas),
            None => push(all, (now, replicas)),
        }
    }

    /// Notes a change of the size. Without rules nothing requests it.
    pub(super) fn changed(
        &mut self,
        rules: Option<(&Rules, &Rules)>,
        [before, after]: [i32; 2],
        now: Duration,
    ) {
        let Some((up, down)) = rules else { return };
        let (changes, rules) = match after > before {
            true => (&mut self.ups, up),
            false => (&mut self.downs, down),
        };
        changes.add(after.saturating_sub(before).saturating_abs(), rules, now);
    }

    /// Replicas at the beginning of a period that ends now.
    pub(super) fn at_start(&self, current: i32, period: Duration, now: Duration) -> i32 {
        let (added, removed) = (self.ups.within(period, now), self.downs.within(period, now));
        current.saturating_sub(added).saturating_add(removed)
    }

    #[cfg(test)]
    pub(super) fn of(
        recommendations: Vec<(Duration, i32)>,
        ups: Vec<(Duration, i32)>,
        downs: Vec<(Duration, i32)>,
    ) -> Self {
        Self {
            recommendations,
            ups: Changes(ups),
            downs: Changes(downs),
            desired: None,
        }
    }

    #[cfg(test)]
    pub(super) fn sums(&self, period: Duration, now: Duration) -> [i32; 2] {
        [self.ups.within(period, now), self.downs.within(period, now)]
    }
}

impl Changes {
    fn add(&mut self, replicas: i32, rules: &Rules, now: Duration) {
        let longest = rules
            .policies
            .iter()
            .map(|policy| period(policy.period_seconds))
            .max();
        let longest = longest.unwrap_or_default();
        let old = self
            .0
            .iter()
            .rposition(|(at, _)| now.saturating_sub(*at) > longest);
        match old {
            Some(place) => self.0[place] = (now, replicas),
            None => push(&mut self.0, (now, replicas)),
        }
    }

    fn within(&self, period: Duration, now: Duration) -> i32 {
        let young = self.0.iter().filter(|(at, _)| now.saturating_sub(*at) < period);
        young.fold(0, |sum, (_, replicas)| sum.saturating_add(*replicas))
    }
}

/// Seconds as the API has them.
pub(super) fn period(seconds: i32) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

fn push(all: &mut Vec<(Duration, i32)>, entry: (Duration, i32)) {
    if all.len() >= MAX_ENTRIES {
        let oldest = (0..all.len()).min_by_key(|place| all[*place].0);
        oldest.map(|place| all.swap_remove(place));
    }
    all.push(entry);
}
