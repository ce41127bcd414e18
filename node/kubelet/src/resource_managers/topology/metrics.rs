//! Figures of the topology manager, under upstream's names.

use machinery_runtime::Runtime;
use machinery_runtime::metrics::{Counters, Family, Histograms};

const REQUESTS: Family = Family::new(
    "kubelet_topology_manager_admission_requests_total",
    "[ALPHA] The number of admission requests where resources have to be aligned.",
    &[],
);
const ERRORS: Family = Family::new(
    "kubelet_topology_manager_admission_errors_total",
    "[ALPHA] The number of admission request failures where resources could not be aligned.",
    &[],
);
const DURATION: Family = Family::new(
    "kubelet_topology_manager_admission_duration_ms",
    "[ALPHA] Duration in milliseconds to serve a pod admission request.",
    &[],
)
.exponential(0.05, 2.0, 15);

/// The figures.
#[derive(Debug)]
pub(crate) struct TopologyMetrics {
    /// Pods that were looked at.
    pub(crate) requests: Counters,
    /// Those that were rejected.
    pub(crate) errors: Counters,
    /// Milliseconds that a pod took.
    pub(crate) durations: Histograms,
}

impl TopologyMetrics {
    pub(crate) fn new(runtime: &Runtime) -> Self {
        let metrics = runtime.metrics();
        let own = Self {
            requests: metrics.counters(&REQUESTS),
            errors: metrics.counters(&ERRORS),
            durations: metrics.histograms(&DURATION),
        };
        own.requests.of(&[]);
        own.errors.of(&[]);
        own.durations.of(&[]);
        own
    }
}
