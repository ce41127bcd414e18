//! The rate of batches: a bucket of tokens, as client-go's flow control.

use super::AuditThrottle;
use std::time::Duration;

/// No batch waits longer for its turn.
const MAX_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

/// See the module.
#[derive(Debug)]
pub(super) struct Throttle {
    qps: f64,
    burst: f64,
    /// Below zero where later tokens are taken already.
    tokens: f64,
    /// Time of the tokens, on the caller's monotonic clock.
    at: Duration,
}

impl Throttle {
    #[expect(clippy::cast_precision_loss, reason = "a bound of batches")]
    pub(super) fn new(limit: AuditThrottle, now: Duration) -> Self {
        let burst = limit.burst as f64;
        Self {
            qps: f64::from(limit.qps),
            burst,
            tokens: burst,
            at: now,
        }
    }

    /// Takes a token, and returns the time until it is there.
    pub(super) fn take(&mut self, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * self.qps).min(self.burst) - 1.0;
        self.at = now;
        let missing = (-self.tokens).max(0.0) / self.qps;
        Duration::try_from_secs_f64(missing).map_or(MAX_PAUSE, |own| own.min(MAX_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttle_lets_a_burst_through_and_then_the_rate() {
        let mut throttle = Throttle::new(AuditThrottle { qps: 10.0, burst: 3 }, Duration::ZERO);
        let at = |millis| Duration::from_millis(millis);
        let pauses: Vec<Duration> = (0..5).map(|_| throttle.take(Duration::ZERO)).collect();
        assert_eq!(pauses, [at(0), at(0), at(0), at(100), at(200)]);
        assert_eq!(throttle.take(at(300)), at(0), "two were in advance");
        let later = at(60_000);
        let pauses: Vec<Duration> = (0..4).map(|_| throttle.take(later)).collect();
        assert_eq!(
            pauses,
            [at(0), at(0), at(0), at(100)],
            "no more than a burst is saved"
        );
        let mut slow = Throttle::new(
            AuditThrottle {
                qps: f32::MIN_POSITIVE,
                burst: 1,
            },
            at(0),
        );
        assert_eq!([slow.take(at(0)), slow.take(at(0))], [at(0), MAX_PAUSE]);
    }
}
