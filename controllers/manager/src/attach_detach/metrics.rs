//! `attachdetach_controller_*` and the durations of attaching and detaching, as upstream's.

use super::names::plugin_of;
use super::stores::Stores;
use machinery_runtime::metrics::{ComponentMetrics, Counters, Family, Histograms, Reading};
use std::collections::BTreeMap;
use std::time::Duration;

const TOTAL: Family = Family::new(
    "attachdetach_controller_total_volumes",
    "[ALPHA] Number of volumes in A/D Controller",
    &["plugin_name", "state"],
);
const FORCED: Family = Family::new(
    "attach_detach_controller_attachdetach_controller_forced_detaches",
    "[ALPHA] Number of times the A/D Controller performed a forced detach",
    &["reason"],
);
const OPERATIONS: Family = Family::new(
    "storage_operation_duration_seconds",
    "[ALPHA] Storage operation duration",
    &["migrated", "operation_name", "status", "volume_plugin"],
)
.listed(&[
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0,
]);

/// Metrics of the controller.
pub(super) struct Metrics {
    forced: Counters,
    operations: Histograms,
    _total: Reading,
}

impl Metrics {
    pub(super) fn new(metrics: &ComponentMetrics, stores: &Stores) -> Self {
        let stores = stores.clone();
        Self {
            forced: metrics.counters(&FORCED),
            operations: metrics.histograms(&OPERATIONS),
            _total: metrics.read(&TOTAL, move |samples| {
                for ((plugin, state), count) in totals(&stores) {
                    samples.add(&[plugin.as_str(), state], f64::from(count));
                }
            }),
        }
    }

    /// A volume was taken from a node that may use it.
    pub(super) fn forced(&self, reason: &str) {
        self.forced.of(&[reason]).inc();
    }

    /// `volume_attach` or `volume_detach` ended, `success` or `fail-unknown`.
    pub(super) fn operation(&self, name: &str, status: &str, driver: &str, took: Duration) {
        let plugin = plugin_of(driver);
        let operation = self.operations.of(&["false", name, status, plugin.as_str()]);
        operation.observe(took.as_secs_f64());
    }
}

/// Volumes that pods need and those that are attached, by plugin.
fn totals(stores: &Stores) -> BTreeMap<(String, &'static str), u32> {
    let mut totals = BTreeMap::new();
    stores.nodes.for_each(|node| {
        for wanted in stores.wanted(node).into_values() {
            let key = (plugin_of(&wanted.driver), "desired_state_of_world");
            *totals.entry(key).or_default() += 1;
        }
    });
    stores.attachments.for_each(|own| {
        let key = (plugin_of(&own.attacher), "actual_state_of_world");
        *totals.entry(key).or_default() += 1;
    });
    totals
}
