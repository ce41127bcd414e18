//! Figures of device plugins, under upstream's names.

use machinery_runtime::Runtime;
use machinery_runtime::metrics::{Counters, Family, Histograms};

const REGISTRATIONS: Family = Family::new(
    "kubelet_device_plugin_registration_total",
    "[ALPHA] Cumulative number of device plugin registrations. Broken down by resource name.",
    &["resource_name"],
);
const DURATIONS: Family = Family::new(
    "kubelet_device_plugin_alloc_duration_seconds",
    "[ALPHA] Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.",
    &["resource_name"],
);

/// Registers the families.
pub(crate) fn begin(runtime: &Runtime) {
    drop(DeviceMetrics::new(runtime));
}

/// The figures.
#[derive(Debug)]
pub(super) struct DeviceMetrics {
    /// Registrations.
    pub(super) registrations: Counters,
    /// Durations of allocations, in seconds.
    pub(super) durations: Histograms,
}

impl DeviceMetrics {
    pub(super) fn new(runtime: &Runtime) -> Self {
        let metrics = runtime.metrics();
        Self {
            registrations: metrics.counters(&REGISTRATIONS),
            durations: metrics.histograms(&DURATIONS),
        }
    }
}
