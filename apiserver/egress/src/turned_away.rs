//! Calls of webhooks that are not made, since calls of others left no place or no memory for them: no failure of the webhook,
//! and the request is to come again.

use machinery_runtime::metrics::{Counters, Family};
use machinery_runtime::{LogThrottle, Runtime};
use std::fmt;

const CALLS: Family = Family::new(
    "knarr_webhook_calls_turned_away_total",
    "Calls of webhooks that were not made, since others' left no place or no memory for them, by the kind of the review.",
    &["review"],
);

/// Counts such calls and logs some of them.
pub struct TurnedAway {
    calls: Counters,
    log: LogThrottle,
    runtime: Runtime,
}

impl fmt::Debug for TurnedAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnedAway").finish_non_exhaustive()
    }
}

impl TurnedAway {
    /// Counts in the metrics of this runtime.
    pub fn new(runtime: &Runtime) -> Self {
        Self {
            calls: runtime.metrics().counters(&CALLS),
            log: LogThrottle::default(),
            runtime: runtime.clone(),
        }
    }

    /// Takes one call with a review of this kind.
    pub fn note(&self, review: &str) {
        self.calls.of(&[review]).inc();
        if let Some(left_out) = self.log.should_log(self.runtime.monotonic()) {
            tracing::warn!(review, left_out, "a webhook was not called for want of a place");
        }
    }
}
