//! Counters and durations of a controller's queue, under upstream's names (`workqueue_adds_total`, …; client-go's
//! `util/workqueue/metrics.go`).

use machinery_runtime::metrics::{ComponentMetrics, Counters, Family, Histograms};
use parking_lot::Mutex;
use std::fmt;
use std::time::Duration;

const NAME: &[&str] = &["name"];

pub(crate) const DEPTH: Family = Family::new("workqueue_depth", "[BETA] Current depth of workqueue", NAME);
const ADDS: Family = Family::new(
    "workqueue_adds_total",
    "[BETA] Total number of adds handled by workqueue",
    NAME,
);
const RETRIES: Family = Family::new(
    "workqueue_retries_total",
    "[BETA] Total number of retries handled by workqueue",
    NAME,
);
const WAITED: Family = Family::new(
    "workqueue_queue_duration_seconds",
    "[BETA] How long in seconds an item stays in workqueue before being requested.",
    NAME,
)
.exponential(10e-9, 10.0, 10);
const WORKED: Family = Family::new(
    "workqueue_work_duration_seconds",
    "[BETA] How long in seconds processing an item from workqueue takes.",
    NAME,
)
.exponential(10e-9, 10.0, 10);
pub(crate) const UNFINISHED: Family = Family::new(
    "workqueue_unfinished_work_seconds",
    "[BETA] How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values \
     indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.",
    NAME,
);
pub(crate) const LONGEST: Family = Family::new(
    "workqueue_longest_running_processor_seconds",
    "[BETA] How many seconds has the longest running processor for workqueue been running.",
    NAME,
);

/// Counters of one controller.
#[derive(Default)]
pub struct ControllerStats {
    queue: Option<QueueCells>,
    counts: Mutex<StatsSnapshot>,
}

/// The vectors, and the queue's label. A queue is looked up at each use: a key is worked on much longer.
struct QueueCells {
    name: &'static str,
    adds: Counters,
    retries: Counters,
    waited: Histograms,
    worked: Histograms,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatsSnapshot {
    /// Keys added that were not in line.
    pub adds: u64,
    /// Keys added for later.
    pub retries: u64,
    /// Reconciliations ended.
    pub reconciles: u64,
    /// Of these, with an error.
    pub errors: u64,
}

impl fmt::Debug for ControllerStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.snapshot().fmt(f)
    }
}

impl ControllerStats {
    /// Counters of the queue with this name, which is its label.
    pub fn of_queue(metrics: &ComponentMetrics, name: &'static str) -> Self {
        let cells = QueueCells {
            name,
            adds: metrics.counters(&ADDS),
            retries: metrics.counters(&RETRIES),
            waited: metrics.histograms(&WAITED),
            worked: metrics.histograms(&WORKED),
        };
        // Upstream's queues have all their series from the start.
        drop((cells.adds.of(&[name]), cells.retries.of(&[name])));
        drop((cells.waited.of(&[name]), cells.worked.of(&[name])));
        Self {
            queue: Some(cells),
            counts: Mutex::default(),
        }
    }

    pub(crate) fn added(&self) {
        self.counts.lock().adds += 1;
        if let Some(cells) = &self.queue {
            cells.adds.of(&[cells.name]).inc();
        }
    }

    pub(crate) fn retried(&self) {
        self.counts.lock().retries += 1;
        if let Some(cells) = &self.queue {
            cells.retries.of(&[cells.name]).inc();
        }
    }

    /// A key was in line so long before a worker took it.
    pub(crate) fn waited(&self, waited: Duration) {
        if let Some(cells) = &self.queue {
            cells.waited.of(&[cells.name]).observe(waited.as_secs_f64());
        }
    }

    /// A worker had a key so long.
    pub(crate) fn worked(&self, worked: Duration) {
        if let Some(cells) = &self.queue {
            cells.worked.of(&[cells.name]).observe(worked.as_secs_f64());
        }
    }

    pub(crate) fn reconciled(&self, failed: bool) {
        let mut counts = self.counts.lock();
        counts.reconciles += 1;
        counts.errors += u64::from(failed);
    }

    /// Reads the counters.
    pub fn snapshot(&self) -> StatsSnapshot {
        *self.counts.lock()
    }
}
