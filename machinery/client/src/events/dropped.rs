//! Events that were not written: a counter for each reason, and a line in the log now and then.

use super::NewEvent;
use machinery_runtime::Runtime;
use machinery_runtime::metrics::{Counters, Family};
use parking_lot::Mutex;
use std::fmt::Display;
use std::time::Duration;

/// Upstream's recorders log what they drop and count nothing.
pub(super) const DROPPED: Family = Family::new(
    "knarr_events_dropped_total",
    "Events that were not written, by component and reason: burst, queue_full, refused, not_written.",
    &["component", "reason"],
);

/// Time between two lines in the log of one recorder.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The reason for which an event was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DropReason {
    /// One object has had too many, which is how the recorder is meant to be.
    Burst,
    /// Too many wait to be sent.
    QueueFull,
    /// The server will not have it.
    Refused,
    /// The server took none of the attempts.
    NotWritten,
}

impl DropReason {
    fn label(self) -> &'static str {
        match self {
            Self::Burst => "burst",
            Self::QueueFull => "queue_full",
            Self::Refused => "refused",
            Self::NotWritten => "not_written",
        }
    }
}

/// Dropped events of one recorder.
#[derive(Debug)]
pub(super) struct DroppedEvents {
    runtime: Runtime,
    component: String,
    counters: Counters,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    /// Time of the last line.
    written: Option<Duration>,
    /// Events that were dropped since then, this one not counted.
    since: u64,
}

impl DroppedEvents {
    pub(super) fn new(runtime: &Runtime, component: &str) -> Self {
        Self {
            counters: runtime.metrics().counters(&DROPPED),
            component: component.to_owned(),
            runtime: runtime.clone(),
            log: Mutex::default(),
        }
    }

    /// Counts a dropped event; the first of a minute is in the log, with the number of those before it. Bursts are not: they are
    /// dropped by design.
    pub(super) fn count(&self, reason: DropReason, event: &NewEvent, cause: &dyn Display) {
        self.counters.of(&[&self.component, reason.label()]).inc();
        tracing::debug!(%cause, ?reason, reason_of_event = %event.reason, "an event was dropped");
        if reason == DropReason::Burst {
            return;
        }
        if let Some(before) = self.log.lock().line(self.runtime.monotonic()) {
            let (component, about) = (&self.component, &event.about.key);
            tracing::warn!(%component, reason = %event.reason, object = %about, %cause, before, "an event was dropped");
        }
    }
}

impl Log {
    /// Number of dropped events since the last line, where it is time for another.
    fn line(&mut self, now: Duration) -> Option<u64> {
        if self
            .written
            .is_some_and(|then| now.saturating_sub(then) < LOG_INTERVAL)
        {
            self.since += 1;
            return None;
        }
        self.written = Some(now);
        Some(std::mem::take(&mut self.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_events_are_in_the_log_once_a_minute_with_their_number() {
        let mut log = Log::default();
        let lines = [0, 1, 59, 60, 61, 300].map(|second| log.line(Duration::from_secs(second)));
        assert_eq!(lines, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
