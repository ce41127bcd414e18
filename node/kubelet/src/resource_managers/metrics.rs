//! Figures of all managers together, under upstream's names.

use machinery_runtime::Runtime;
use machinery_runtime::metrics::{Counters, Family};

use super::cpu::metrics::CpuMetrics;
use super::memory::metrics::MemoryMetrics;
use super::topology::metrics::TopologyMetrics;

const LABELS: &[&str] = &["scope", "boundary"];
const ALIGNED: Family = Family::new(
    "kubelet_container_aligned_compute_resources_count",
    "[ALPHA] Cumulative number of aligned compute resources allocated to containers by alignment type.",
    LABELS,
);
const NOT_ALIGNED: Family = Family::new(
    "kubelet_container_aligned_compute_resources_failure_count",
    "[ALPHA] Cumulative number of failures to allocate aligned compute resources to containers by alignment type.",
    LABELS,
);

/// Registers the families.
pub(crate) fn begin(runtime: &Runtime) {
    drop(Metrics::new(runtime));
}

/// The figures.
#[derive(Debug)]
pub(super) struct Metrics {
    pub(super) cpu: CpuMetrics,
    pub(super) memory: MemoryMetrics,
    pub(super) topology: TopologyMetrics,
    /// Allocations by scope and boundary, such as `container` and `physical_cpu`.
    pub(super) aligned: Counters,
    /// Those that failed.
    pub(super) not_aligned: Counters,
}

impl Metrics {
    pub(super) fn new(runtime: &Runtime) -> Self {
        let metrics = runtime.metrics();
        Self {
            cpu: CpuMetrics::new(runtime),
            memory: MemoryMetrics::new(runtime),
            topology: TopologyMetrics::new(runtime),
            aligned: metrics.counters(&ALIGNED),
            not_aligned: metrics.counters(&NOT_ALIGNED),
        }
    }
}
