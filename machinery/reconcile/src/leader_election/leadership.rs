//! Time until which a candidate leads.

use machinery_runtime::Runtime;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Leadership of a candidate, checked by everything that acts in its name. Clones are the same leadership.
#[derive(Debug, Clone)]
pub struct Leadership {
    runtime: Runtime,
    /// Microseconds of the runtime's clock; zero when another leads.
    until: Arc<AtomicU64>,
}

impl Leadership {
    pub(super) fn none(runtime: &Runtime) -> Self {
        Self {
            runtime: runtime.clone(),
            until: Arc::default(),
        }
    }

    /// No other candidate can have begun yet.
    pub fn holds(&self) -> bool {
        self.left().is_some()
    }

    /// Time for which it holds without a further renewal.
    pub(super) fn left(&self) -> Option<Duration> {
        let until = Duration::from_micros(self.until.load(Ordering::Acquire));
        until
            .checked_sub(self.runtime.monotonic())
            .filter(|left| !left.is_zero())
    }

    pub(super) fn extend(&self, until: Duration) {
        let micros = u64::try_from(until.as_micros()).unwrap_or(u64::MAX);
        self.until.store(micros, Ordering::Release);
    }

    pub(super) fn end(&self) {
        self.until.store(0, Ordering::Release);
    }
}
