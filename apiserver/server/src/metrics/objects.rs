//! Numbers of stored objects, by resource, and of services' node ports, as they were counted last.

use super::families::Families;
use apiserver_registry::Registry;
use apiserver_registry::kinds::core::service::NodePorts;
use apiserver_storage::Prefix;
use machinery_runtime::Runtime;
use prometheus::{GaugeVec, IntGauge, Opts};
use std::collections::HashSet;
use std::time::Duration;

/// Upstream's interval.
const COUNTED_EVERY: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct ObjectMetrics {
    objects: GaugeVec,
    bytes: GaugeVec,
    ports_taken: IntGauge,
    ports_free: IntGauge,
}

impl ObjectMetrics {
    pub(super) fn new(families: &Families) -> Result<Self, prometheus::Error> {
        let options = Opts::new(
            "apiserver_resource_objects",
            "[ALPHA] Number of stored objects at the time of last check split by kind. In case of a fetching error, the value will be -1.",
        );
        let gauges = GaugeVec::new(options, &["group", "resource"])?;
        let options = Opts::new(
            "apiserver_resource_size_estimate_bytes",
            "[ALPHA] Estimated size of stored objects in database. Estimate is based on sum of last observed sizes of serialized objects. In case of a fetching error, the value will be -1.",
        );
        let bytes = GaugeVec::new(options, &["group", "resource"])?;
        let gauge = |name: &str, help: &str| {
            let gauge = IntGauge::new(format!("kube_apiserver_nodeport_allocator_{name}"), help)?;
            families.registry().register(Box::new(gauge.clone()))?;
            Ok::<_, prometheus::Error>(gauge)
        };
        Ok(Self {
            objects: families.vector(gauges)?,
            bytes: families.vector(bytes)?,
            ports_taken: gauge(
                "allocated_ports",
                "[ALPHA] Gauge measuring the number of allocated NodePorts for Services",
            )?,
            ports_free: gauge(
                "available_ports",
                "[ALPHA] Gauge measuring the number of available NodePorts for Services",
            )?,
        })
    }

    /// Counts again and again, for ever.
    pub(crate) async fn keep_counting(self, registry: Registry, runtime: Runtime) {
        let mut known = HashSet::new();
        loop {
            known = self.count(&registry, known).await;
            self.count_ports(&registry).await;
            runtime.sleep(COUNTED_EVERY).await;
        }
    }

    async fn count_ports(&self, registry: &Registry) {
        // While they cannot be read, the gauges stay.
        if let Ok((taken, free)) = NodePorts::usage(registry).await {
            self.ports_taken.set(i64::try_from(taken).unwrap_or(i64::MAX));
            self.ports_free.set(i64::try_from(free).unwrap_or(i64::MAX));
        }
    }

    /// Counts the objects of every resource; resources that are gone lose their gauges. Returns those that are left.
    async fn count(&self, registry: &Registry, before: HashSet<[String; 2]>) -> HashSet<[String; 2]> {
        let rows = registry.rows();
        let mut counted = HashSet::new();
        for row in rows.all().filter(|row| row.has_store) {
            let labels = [row.gvk.group.clone(), row.plural.clone()];
            // Versions of a resource share their objects.
            if counted.contains(&labels) {
                continue;
            }
            let count = count(registry, &row.stored.prefix).await;
            self.objects.with_label_values(&labels).set(count);
            let bytes = estimated_bytes(registry, &row.stored.prefix);
            self.bytes.with_label_values(&labels).set(bytes);
            counted.insert(labels);
        }
        for gone in before.difference(&counted) {
            // A reset may have taken it already.
            let _ = self.objects.remove_label_values(gone);
            let _ = self.bytes.remove_label_values(gone);
        }
        counted
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below where it begins")]
async fn count(registry: &Registry, prefix: &str) -> f64 {
    let Ok(prefix) = Prefix::parse(prefix) else {
        return -1.0;
    };
    let count = registry.stored().count(&prefix).await;
    count.map_or(-1.0, |count| count as f64)
}

/// Objects whose sizes stand for those of all of a resource.
const SAMPLED: usize = 1_000;

#[expect(clippy::cast_precision_loss, reason = "far below where it begins")]
fn estimated_bytes(registry: &Registry, prefix: &str) -> f64 {
    let prefix = Prefix::parse(prefix).ok();
    let sample = prefix.and_then(|prefix| registry.stored().sample(&prefix, SAMPLED));
    match sample {
        Some(sample) if sample.count == 0 || sample.average_bytes > 0 => {
            (sample.count * sample.average_bytes) as f64
        }
        _ => -1.0,
    }
}
