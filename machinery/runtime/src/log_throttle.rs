//! Lines of the log about something that others can make happen many times a second.

use parking_lot::Mutex;
use std::time::Duration;

/// Most lines about one thing in an interval; those that are left out are counted.
#[derive(Debug)]
pub struct LogThrottle {
    lines: u32,
    interval: Duration,
    window: Mutex<Window>,
}

#[derive(Debug, Default)]
struct Window {
    /// Its beginning, on the caller's monotonic clock.
    since: Duration,
    written: u32,
    left_out: u64,
}

impl Default for LogThrottle {
    /// One line in half a minute.
    fn default() -> Self {
        Self::new(1, Duration::from_secs(30))
    }
}

impl LogThrottle {
    /// A throttle of so many lines in an interval.
    pub fn new(lines: u32, interval: Duration) -> Self {
        Self {
            lines,
            interval,
            window: Mutex::default(),
        }
    }

    /// Number of lines left out since the last one, where this one is to be written.
    pub fn should_log(&self, now: Duration) -> Option<u64> {
        let mut window = self.window.lock();
        if now.saturating_sub(window.since) >= self.interval {
            (window.since, window.written) = (now, 0);
        }
        if window.written == self.lines {
            window.left_out += 1;
            return None;
        }
        window.written += 1;
        Some(std::mem::take(&mut window.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_throttle_counts_lines_that_are_left_out() {
        let throttle = LogThrottle::new(2, Duration::from_secs(4));
        let at = |second| throttle.should_log(Duration::from_secs(second));
        assert_eq!((at(1), at(3)), (Some(0), Some(0)));
        assert_eq!((at(3), at(3)), (None, None));
        assert_eq!((at(4), at(7)), (Some(2), Some(0)));
        assert_eq!((at(7), at(9)), (None, Some(1)));
    }
}
