//! Counters of a controller for its metrics (`workqueue_adds_total`, `workqueue_retries_total`, …).

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one controller.
#[derive(Debug, Default)]
pub struct ControllerStats {
    adds: AtomicU64,
    retries: AtomicU64,
    reconciles: AtomicU64,
    errors: AtomicU64,
    working_micros: AtomicU64,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatsSnapshot {
    /// Keys added.
    pub adds: u64,
    /// Keys added again after a failure.
    pub retries: u64,
    /// Reconciliations ended.
    pub reconciles: u64,
    /// Of these, with an error.
    pub errors: u64,
    /// Time spent in them, in microseconds.
    pub working_micros: u64,
}

impl ControllerStats {
    pub(crate) fn added(&self) {
        self.adds.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn retried(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn reconciled(&self, took: std::time::Duration, failed: bool) {
        self.reconciles.fetch_add(1, Ordering::Relaxed);
        self.errors.fetch_add(u64::from(failed), Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.working_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Reads the counters.
    pub fn snapshot(&self) -> StatsSnapshot {
        StatsSnapshot {
            adds: self.adds.load(Ordering::Relaxed),
            retries: self.retries.load(Ordering::Relaxed),
            reconciles: self.reconciles.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            working_micros: self.working_micros.load(Ordering::Relaxed),
        }
    }
}
