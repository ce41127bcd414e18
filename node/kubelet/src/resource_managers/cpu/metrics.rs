//! Figures of the CPU manager, under upstream's names.

use machinery_runtime::Runtime;
use machinery_runtime::metrics::{Counters, Family, Gauges};

use super::policy::{CpuPolicy, CpuTable};
use super::topology::Level;

const REQUESTS: Family = Family::new(
    "kubelet_cpu_manager_pinning_requests_total",
    "[ALPHA] The number of cpu core allocations which required pinning.",
    &[],
);
const ERRORS: Family = Family::new(
    "kubelet_cpu_manager_pinning_errors_total",
    "[ALPHA] The number of cpu core allocations which required pinning failed.",
    &[],
);
const SHARED: Family = Family::new(
    "kubelet_cpu_manager_shared_pool_size_millicores",
    "[ALPHA] The size of the shared CPU pool for non-guaranteed QoS pods, in millicores.",
    &[],
);
const EXCLUSIVE: Family = Family::new(
    "kubelet_cpu_manager_exclusive_cpu_allocation_count",
    "[ALPHA] The total number of CPUs exclusively allocated to containers running on this node",
    &[],
);
const BY_NODE: Family = Family::new(
    "kubelet_cpu_manager_allocation_per_numa",
    "[ALPHA] Number of CPUs allocated per NUMA node",
    &["numa_node"],
);

/// The figures.
#[derive(Debug)]
pub(crate) struct CpuMetrics {
    /// Requests for processors of a container's own.
    pub(crate) requests: Counters,
    /// Those that failed.
    pub(crate) errors: Counters,
    shared: Gauges,
    exclusive: Gauges,
    by_node: Gauges,
}

impl CpuMetrics {
    pub(crate) fn new(runtime: &Runtime) -> Self {
        let metrics = runtime.metrics();
        let own = Self {
            requests: metrics.counters(&REQUESTS),
            errors: metrics.counters(&ERRORS),
            shared: metrics.gauges(&SHARED),
            exclusive: metrics.gauges(&EXCLUSIVE),
            by_node: metrics.gauges(&BY_NODE),
        };
        // They are there before their first value, as upstream's.
        own.requests.of(&[]);
        own.errors.of(&[]);
        own.shared.of(&[]);
        own.exclusive.of(&[]);
        own
    }

    /// Shows who has which processors.
    pub(crate) fn show(&self, policy: &CpuPolicy, table: &CpuTable) {
        let count = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        let exclusive = table.exclusive();
        self.shared
            .of(&[])
            .set(count(policy.available(table).len()) * 1000.0);
        self.exclusive.of(&[]).set(count(exclusive.len()));
        let places = policy.topology.places.only(&exclusive);
        for node in policy.topology.places.parts(Level::Node) {
            let own = count(places.count_in(Level::Node, node));
            self.by_node.of(&[&node.to_string()]).set(own);
        }
    }
}
