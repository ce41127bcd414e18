//! Numbers of stored objects, by resource, as they were counted last.

use super::families::Families;
use apiserver_registry::Registry;
use apiserver_storage::{Prefix, RangeOptions};
use machinery_runtime::Runtime;
use prometheus::{GaugeVec, Opts};
use std::collections::HashSet;
use std::time::Duration;

/// Upstream's interval.
const COUNTED_EVERY: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct ObjectMetrics(GaugeVec);

impl ObjectMetrics {
    pub(super) fn new(families: &Families) -> Result<Self, prometheus::Error> {
        let options = Opts::new(
            "apiserver_resource_objects",
            "[ALPHA] Number of stored objects at the time of last check split by kind. In case of a fetching error, the value will be -1.",
        );
        let gauges = GaugeVec::new(options, &["group", "resource"])?;
        families.vector(gauges).map(Self)
    }

    /// Counts again and again, for ever.
    pub(crate) async fn keep_counting(self, registry: Registry, runtime: Runtime) {
        let mut known = HashSet::new();
        loop {
            known = self.count(&registry, known).await;
            runtime.sleep(COUNTED_EVERY).await;
        }
    }

    /// Counts the objects of every resource; resources that are gone lose their gauges. Returns those that are left.
    async fn count(&self, registry: &Registry, before: HashSet<[String; 2]>) -> HashSet<[String; 2]> {
        let rows = registry.rows();
        let mut counted = HashSet::new();
        for row in rows.all().filter(|row| !row.virtual_kind) {
            let labels = [row.gvk.group.clone(), row.plural.clone()];
            // Versions of a resource share their objects.
            if counted.contains(&labels) {
                continue;
            }
            let count = count(registry, &row.stored.prefix).await;
            self.0.with_label_values(&labels).set(count);
            counted.insert(labels);
        }
        for gone in before.difference(&counted) {
            // A reset may have taken it already.
            let _ = self.0.remove_label_values(gone);
        }
        counted
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below where it begins")]
async fn count(registry: &Registry, prefix: &str) -> f64 {
    let Ok(prefix) = Prefix::parse(prefix) else {
        return -1.0;
    };
    let options = RangeOptions {
        limit: 1,
        ..RangeOptions::default()
    };
    match registry.stored().range(&prefix, &options).await {
        Ok(page) => page.entries.len() as f64 + page.remaining as f64,
        Err(_) => -1.0,
    }
}
