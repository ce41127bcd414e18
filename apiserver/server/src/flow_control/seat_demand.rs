//! Seats that a priority level requested: mean, deviation and peak over an interval, and their smoothed envelope.

use std::time::Duration;

/// Part of the former envelope that each adjustment keeps, so that demand falls slowly and rises at once.
const SMOOTHING_COEFFICIENT: f64 = 0.977;

/// A value over time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Integrator {
    last_time: Duration,
    value: f64,
    elapsed: f64,
    integral: f64,
    integral_of_square: f64,
    max: f64,
}

/// The figures of an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Interval {
    pub(super) elapsed: f64,
    pub(super) average: f64,
    pub(super) deviation: f64,
    pub(super) max: f64,
}

impl Integrator {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            last_time: now,
            value: 0.0,
            elapsed: 0.0,
            integral: 0.0,
            integral_of_square: 0.0,
            max: 0.0,
        }
    }

    pub(super) fn set(&mut self, value: f64, now: Duration) {
        self.advance(now);
        self.value = value;
        self.max = self.max.max(value);
    }

    /// The interval since the last reset, and begins another.
    pub(super) fn reset(&mut self, now: Duration) -> Interval {
        self.advance(now);
        let (mut average, mut deviation) = (0.0, 0.0);
        if self.elapsed > 0.0 {
            average = self.integral / self.elapsed;
            // Rounding may leave less than nothing.
            deviation = (self.integral_of_square / self.elapsed - average * average)
                .max(0.0)
                .sqrt();
        }
        let interval = Interval {
            elapsed: self.elapsed,
            average,
            deviation,
            max: self.max,
        };
        *self = Self {
            value: self.value,
            max: self.value,
            ..Self::new(self.last_time)
        };
        interval
    }

    fn advance(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.last_time).as_secs_f64();
        self.last_time = self.last_time.max(now);
        self.elapsed += passed;
        self.integral += passed * self.value;
        self.integral_of_square += passed * self.value * self.value;
    }
}

/// A level's demand, by adjustment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct SeatDemand {
    pub(super) average: f64,
    pub(super) deviation: f64,
    pub(super) high_watermark: f64,
    pub(super) smoothed: f64,
}

impl SeatDemand {
    pub(super) fn update(&mut self, interval: Interval) {
        self.high_watermark = interval.max.round();
        if interval.elapsed <= 0.0 {
            return;
        }
        self.average = interval.average;
        self.deviation = interval.deviation;
        let envelope = interval.average + interval.deviation;
        let decayed = SMOOTHING_COEFFICIENT * self.smoothed + (1.0 - SMOOTHING_COEFFICIENT) * envelope;
        self.smoothed = envelope.max(decayed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// The case of upstream's `integrator_test.go`.
    #[test]
    fn seat_demand_integrator_gives_average_and_deviation() {
        let mut integrator = Integrator::new(at(0.0));
        integrator.set(3.0, at(0.0));
        assert_eq!(integrator.reset(at(0.0)).elapsed, 0.0);
        let interval = integrator.reset(at(1.0));
        assert_eq!(
            (interval.average, interval.deviation, interval.max),
            (3.0, 0.0, 3.0)
        );
        integrator.set(0.0, at(2.0));
        let interval = integrator.reset(at(3.0));
        assert_eq!(
            (interval.elapsed, interval.average, interval.deviation),
            (2.0, 1.5, 1.5)
        );
        let interval = integrator.reset(at(4.0));
        assert_eq!((interval.average, interval.max), (0.0, 0.0));
    }

    #[test]
    fn seat_demand_rises_at_once_and_falls_slowly() {
        let mut demand = SeatDemand::default();
        let interval = |average: f64| Interval {
            elapsed: 10.0,
            average,
            deviation: 0.0,
            max: average,
        };
        demand.update(interval(100.0));
        assert_eq!((demand.smoothed, demand.high_watermark), (100.0, 100.0));
        demand.update(interval(0.0));
        assert_eq!(demand.high_watermark, 0.0);
        assert!((demand.smoothed - 97.7).abs() < 1e-9);
        (0..100).for_each(|_| demand.update(interval(0.0)));
        assert!(demand.smoothed < 10.0);
    }
}
