//! Availability of APIServices, under upstream's names.

use super::families::Families;
use crate::aggregation::Table;
use arc_swap::ArcSwap;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounterVec, IntGaugeVec, Opts};
use std::sync::Arc;

/// Counts APIServices that became unavailable.
#[derive(Debug)]
pub(crate) struct AggregationMetrics(IntCounterVec);

impl AggregationMetrics {
    pub(crate) fn new(families: &Families) -> Result<Arc<Self>, prometheus::Error> {
        let total = Opts::new(
            "aggregator_unavailable_apiservice_total",
            "[ALPHA] Counter of APIServices which are marked as unavailable broken down by APIService name and reason.",
        );
        let total = IntCounterVec::new(total, &["name", "reason"])?;
        Ok(Arc::new(Self(families.vector(total)?)))
    }

    pub(crate) fn became_unavailable(&self, name: &str, reason: &str) {
        self.0.with_label_values(&[name, reason]).inc();
    }
}

/// Reads the conditions of all APIServices at each request for metrics.
pub(crate) struct AvailabilityCollector {
    table: Arc<ArcSwap<Table>>,
    unavailable: IntGaugeVec,
}

impl AvailabilityCollector {
    pub(crate) fn new(table: &Arc<ArcSwap<Table>>) -> Result<Self, prometheus::Error> {
        let unavailable = Opts::new(
            "aggregator_unavailable_apiservice",
            "[ALPHA] Gauge of APIServices which are marked as unavailable broken down by APIService name.",
        );
        Ok(Self {
            table: Arc::clone(table),
            unavailable: IntGaugeVec::new(unavailable, &["name"])?,
        })
    }
}

impl Collector for AvailabilityCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.unavailable.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.unavailable.reset();
        for own in self.table.load().all() {
            let gauge = self.unavailable.with_label_values(&[&own.name]);
            gauge.set(i64::from(!own.is_available));
        }
        self.unavailable.collect()
    }
}
