//! Calls of the container runtime.

use machinery_runtime::Runtime;
use machinery_runtime::metrics::{ComponentMetrics, Counters, Family, Histograms};
use node_cri::{CallEnd, CallObserver};

const TOTAL: Family = Family::new(
    "kubelet_runtime_operations_total",
    "[ALPHA] Cumulative number of runtime operations by operation type.",
    &["operation_type"],
);
const DURATION: Family = Family::new(
    "kubelet_runtime_operations_duration_seconds",
    "[ALPHA] Duration in seconds of runtime operations. Broken down by operation type.",
    &["operation_type"],
)
.exponential(0.005, 2.5, 14);
const ERRORS: Family = Family::new(
    "kubelet_runtime_operations_errors_total",
    "[ALPHA] Cumulative number of runtime operation errors by operation type.",
    &["operation_type"],
);
const SANDBOX_DURATION: Family = Family::new(
    "kubelet_run_podsandbox_duration_seconds",
    "[ALPHA] Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.",
    &["runtime_handler"],
);
const SANDBOX_ERRORS: Family = Family::new(
    "kubelet_run_podsandbox_errors_total",
    "[ALPHA] Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.",
    &["runtime_handler"],
);

pub(crate) fn begin(metrics: &ComponentMetrics) {
    let _ = (metrics.counters(&TOTAL), metrics.counters(&ERRORS));
    let _ = (
        metrics.histograms(&DURATION),
        metrics.histograms(&SANDBOX_DURATION),
    );
    drop(metrics.counters(&SANDBOX_ERRORS));
}

/// Counts calls by their names.
#[derive(Debug)]
pub(crate) struct CallMetrics {
    runtime: Runtime,
    total: Counters,
    durations: Histograms,
    errors: Counters,
}

impl CallMetrics {
    pub(crate) fn new(runtime: &Runtime) -> Self {
        let metrics = runtime.metrics();
        Self {
            runtime: runtime.clone(),
            total: metrics.counters(&TOTAL),
            durations: metrics.histograms(&DURATION),
            errors: metrics.counters(&ERRORS),
        }
    }
}

impl CallObserver for CallMetrics {
    fn began(&self, operation: &'static str) -> CallEnd {
        let (runtime, began) = (self.runtime.clone(), self.runtime.monotonic());
        let total = self.total.of(&[operation]);
        let (duration, errors) = (self.durations.of(&[operation]), self.errors.clone());
        Box::new(move |failed| {
            total.inc();
            duration.observe((runtime.monotonic() - began).as_secs_f64());
            if failed {
                errors.of(&[operation]).inc();
            }
        })
    }
}

/// Counts a start of a sandbox by a handler of the runtime.
pub(crate) fn sandbox_ran(runtime: &Runtime, handler: &str, took: std::time::Duration, failed: bool) {
    let metrics = runtime.metrics();
    let durations = metrics.histograms(&SANDBOX_DURATION);
    durations.of(&[handler]).observe(took.as_secs_f64());
    if failed {
        metrics.counters(&SANDBOX_ERRORS).of(&[handler]).inc();
    }
}
