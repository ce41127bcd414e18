//! Figures of the memory manager, under upstream's names.

use machinery_runtime::Runtime;
use machinery_runtime::metrics::{Counters, Family};

const REQUESTS: Family = Family::new(
    "kubelet_memory_manager_pinning_requests_total",
    "[ALPHA] The number of memory pages allocations which required pinning.",
    &[],
);
const ERRORS: Family = Family::new(
    "kubelet_memory_manager_pinning_errors_total",
    "[ALPHA] The number of memory pages allocations which required pinning that failed.",
    &[],
);

/// The figures.
#[derive(Debug)]
pub(crate) struct MemoryMetrics {
    /// Requests for memory of a container's own.
    pub(crate) requests: Counters,
    /// Those that failed.
    pub(crate) errors: Counters,
}

impl MemoryMetrics {
    pub(crate) fn new(runtime: &Runtime) -> Self {
        let metrics = runtime.metrics();
        let own = Self {
            requests: metrics.counters(&REQUESTS),
            errors: metrics.counters(&ERRORS),
        };
        own.requests.of(&[]);
        own.errors.of(&[]);
        own
    }
}
