//! A throttle for watches on a machine that cannot keep up.
//!
//! A write to a connection costs more than the bytes it carries. While the machine keeps up, every watch receives a
//! change at once. When changes are delivered late, the processor is the bottleneck, and each watch pauses between
//! two frames for a multiple of the lag: the changes of the pause are sent in one frame, and other requests get the
//! processor meanwhile.

use parking_lot::Mutex;
use std::time::Duration;

/// Factor between the mean delivery lag and the delay between two frames. If the delivery of one change to all
/// watches takes a moment, the mean lag is half of it and the delay sixteen times it, so changes at a lower rate are
/// never delayed.
const LAG_FACTOR: u32 = 32;
/// Longest delay between two frames.
const MAX_DELAY: Duration = Duration::from_millis(100);
/// Shorter delays are left out: they gather nothing, and timers are coarser.
const MIN_DELAY: Duration = Duration::from_millis(4);

/// Delivery lag of all watches of a server.
#[derive(Debug, Default)]
pub(crate) struct WatchThrottle(Mutex<DeliveryLag>);

/// Lag of this moment and the one before, over which the mean is taken.
#[derive(Debug, Default)]
struct DeliveryLag {
    /// Number of the current moment since the clock began; a moment is as long as [`MAX_DELAY`].
    moment: u128,
    now: Sum,
    before: Sum,
}

#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    late: Duration,
    times: u32,
}

impl WatchThrottle {
    /// Time of the next frame of a watch whose last one was made at `last`; `None` if it may be sent now.
    pub(super) fn delay_until(&self, last: Duration, now: Duration) -> Option<Duration> {
        let long = (self.with(now, |lag| lag.mean()) * LAG_FACTOR).min(MAX_DELAY);
        let until = last + long;
        (long >= MIN_DELAY && now < until).then_some(until)
    }

    /// Records how late changes were delivered to a watch that was ready for them.
    pub(super) fn record_lag(&self, late: Duration, now: Duration) {
        self.with(now, |lag| {
            lag.now.late += late;
            lag.now.times += 1;
        });
    }

    fn with<T>(&self, now: Duration, look: impl FnOnce(&mut DeliveryLag) -> T) -> T {
        let moment = now.as_micros() / MAX_DELAY.as_micros();
        let mut lag = self.0.lock();
        // A reading of the clock from just before another's changes nothing.
        if moment > lag.moment {
            let next = moment == lag.moment + 1;
            *lag = DeliveryLag {
                moment,
                now: Sum::default(),
                before: if next { lag.now } else { Sum::default() },
            };
        }
        look(&mut lag)
    }
}

impl DeliveryLag {
    fn mean(&self) -> Duration {
        let times = self.now.times + self.before.times;
        (self.now.late + self.before.late)
            .checked_div(times)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{LAG_FACTOR, MAX_DELAY, WatchThrottle};
    use std::time::Duration;

    #[test]
    fn watch_delay_is_a_multiple_of_delivery_lag() {
        let throttle = WatchThrottle::default();
        let at = |millis: u64| Duration::from_millis(1_000 + millis);
        let late = Duration::from_millis;
        assert_eq!(throttle.delay_until(at(0), at(1)), None, "nobody was late yet");
        throttle.record_lag(Duration::from_micros(50), at(1));
        assert_eq!(throttle.delay_until(at(1), at(1)), None, "the machine keeps up");
        throttle.record_lag(late(2) - Duration::from_micros(50), at(2));
        assert_eq!(
            throttle.delay_until(at(2), at(3)),
            Some(at(2) + late(1) * LAG_FACTOR),
            "the mean counts"
        );
        assert_eq!(throttle.delay_until(at(2), at(50)), None, "that rest is over");
        (0..100).for_each(|_| throttle.record_lag(late(500), at(60)));
        assert_eq!(
            throttle.delay_until(at(60), at(61)),
            Some(at(60) + MAX_DELAY),
            "there is a bound"
        );
        assert_eq!(
            throttle.delay_until(at(101), at(102)),
            Some(at(101) + MAX_DELAY),
            "the moment before counts"
        );
        assert_eq!(throttle.delay_until(at(301), at(302)), None, "it is long ago");
    }
}
