//! Upstream's timing histograms: the time that a ratio spends in each bucket, in nanoseconds.

use prometheus::proto::{Bucket, Histogram};
use std::time::Duration;

/// A numerator over a denominator, each set on its own, and where the ratio has been since the beginning.
#[derive(Debug)]
pub(super) struct TimingRatio {
    /// Upper bounds, inclusive.
    bounds: &'static [f64],
    /// Nanoseconds in each bucket; the last one is above all bounds.
    nanoseconds: Vec<u64>,
    /// The ratio's integral over nanoseconds.
    integral: f64,
    numerator: f64,
    denominator: f64,
    last_time: Duration,
}

impl TimingRatio {
    pub(super) fn new(bounds: &'static [f64], now: Duration) -> Self {
        Self {
            bounds,
            nanoseconds: vec![0; bounds.len() + 1],
            integral: 0.0,
            numerator: 0.0,
            denominator: 1.0,
            last_time: now,
        }
    }

    pub(super) fn set(&mut self, numerator: f64, now: Duration) {
        self.advance(now);
        self.numerator = numerator;
    }

    pub(super) fn add(&mut self, difference: f64, now: Duration) {
        self.set(self.numerator + difference, now);
    }

    pub(super) fn set_denominator(&mut self, denominator: f64, now: Duration) {
        self.advance(now);
        self.denominator = denominator;
    }

    fn advance(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.last_time);
        if passed.is_zero() {
            return;
        }
        self.last_time = now;
        let ratio = self.numerator / self.denominator;
        let bucket = self.bounds.partition_point(|bound| *bound < ratio);
        let nanoseconds = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds[bucket] = self.nanoseconds[bucket].saturating_add(nanoseconds);
        self.integral += ratio * passed.as_secs_f64() * 1e9;
    }

    /// The histogram up to now.
    pub(super) fn histogram(&mut self, now: Duration) -> Histogram {
        self.advance(now);
        let mut count = 0;
        let mut buckets = Vec::with_capacity(self.bounds.len());
        for (bound, nanoseconds) in self.bounds.iter().zip(&self.nanoseconds) {
            count += nanoseconds;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(count);
            buckets.push(bucket);
        }
        let mut histogram = Histogram::default();
        histogram.set_bucket(buckets);
        histogram.set_sample_count(count + self.nanoseconds.last().copied().unwrap_or(0));
        histogram.set_sample_sum(self.integral);
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timing_ratio_counts_nanoseconds_by_bucket() {
        let at = Duration::from_nanos;
        let mut ratio = TimingRatio::new(&[0.0, 0.5, 1.0], at(0));
        // 10 ns at 0, 20 ns at 1/2, 30 ns at 2/2, 40 ns at 2/1.
        ratio.set_denominator(2.0, at(5));
        ratio.set(1.0, at(10));
        ratio.add(1.0, at(30));
        ratio.set_denominator(1.0, at(60));
        let histogram = ratio.histogram(at(100));
        let counts: Vec<u64> = histogram
            .get_bucket()
            .iter()
            .map(Bucket::cumulative_count)
            .collect();
        assert_eq!(counts, [10, 30, 60]);
        assert_eq!(histogram.get_sample_count(), 100);
        assert!((histogram.get_sample_sum() - (10.0 + 30.0 + 80.0)).abs() < 1e-6);
        // A clock that stands still adds nothing.
        assert_eq!(ratio.histogram(at(100)).get_sample_count(), 100);
    }
}
