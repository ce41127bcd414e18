//! `node_collector_*` (upstream's `pkg/controller/nodelifecycle/metrics.go`). Nothing looks at all nodes in one round here,
//! so there is no `update_all_nodes_health_duration_seconds`.

use super::zones::Zones;
use machinery_runtime::metrics::{ComponentMetrics, Counters, Family, Histogram, Reading};
use std::sync::Arc;

const ZONE: &[&str] = &["zone"];

const HEALTH: Family = Family::new(
    "node_collector_zone_health",
    "[ALPHA] Gauge measuring percentage of healthy nodes per zone.",
    ZONE,
);
const SIZE: Family = Family::new(
    "node_collector_zone_size",
    "[ALPHA] Gauge measuring number of registered Nodes per zones.",
    ZONE,
);
const UNHEALTHY: Family = Family::new(
    "node_collector_unhealthy_nodes_in_zone",
    "[ALPHA] Gauge measuring number of not Ready Nodes per zones.",
    ZONE,
);
const EVICTIONS: Family = Family::new(
    "node_collector_evictions_total",
    "[STABLE] Number of Node evictions that happened since current instance of NodeController started.",
    ZONE,
);
const LOOK: Family = Family::new(
    "node_collector_update_node_health_duration_seconds",
    "[ALPHA] Duration in seconds for NodeController to update the health of a single node.",
    &[],
)
.exponential(0.001, 4.0, 8);

/// The vectors, and what is read of the zones.
pub(super) struct NodeMetrics {
    evictions: Counters,
    look: Histogram,
    _readings: [Reading; 3],
}

impl NodeMetrics {
    pub(super) fn new(metrics: &ComponentMetrics, zones: &Arc<Zones>) -> Self {
        let read = |family: &Family, figure: fn(f64, f64) -> f64| {
            let zones = Arc::clone(zones);
            metrics.read(family, move |samples| {
                #[expect(clippy::cast_precision_loss, reason = "a number of nodes")]
                for (zone, ready, unready) in zones.sizes() {
                    samples.add(&[&zone], figure(ready as f64, unready as f64));
                }
            })
        };
        Self {
            evictions: metrics.counters(&EVICTIONS),
            look: metrics.histograms(&LOOK).of(&[]),
            _readings: [
                read(&HEALTH, |ready, unready| 100.0 * ready / (ready + unready)),
                read(&SIZE, |ready, unready| ready + unready),
                read(&UNHEALTHY, |_, unready| unready),
            ],
        }
    }

    /// A reconcile of a node took so many seconds.
    pub(super) fn took(&self, seconds: f64) {
        self.look.observe(seconds);
    }

    /// Counts a node that was tainted `NoExecute`.
    pub(super) fn given_up(&self, zone: &str) {
        self.evictions.of(&[zone]).inc();
    }
}
