//! Panics of tasks, and components that are down because of them.

use machinery_runtime::Runtime;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounterVec, IntGaugeVec, Opts};

/// Reads [`Runtime::components`] when somebody asks for metrics.
pub(super) struct ComponentsCollector {
    runtime: Runtime,
    up: IntGaugeVec,
    panics: IntCounterVec,
    restarts: IntCounterVec,
}

impl ComponentsCollector {
    pub(super) fn new(runtime: Runtime) -> Result<Self, prometheus::Error> {
        let up = Opts::new("knarr_component_up", "0 while a component is down after a panic.");
        let panics = Opts::new(
            "knarr_task_panics_total",
            "Panics that ended one request or one component, by task.",
        );
        let restarts = Opts::new(
            "knarr_component_restarts_total",
            "Times that a component was begun again after a panic or an error.",
        );
        Ok(Self {
            runtime,
            up: IntGaugeVec::new(up, &["component"])?,
            panics: IntCounterVec::new(panics, &["task"])?,
            restarts: IntCounterVec::new(restarts, &["component"])?,
        })
    }
}

impl Collector for ComponentsCollector {
    fn desc(&self) -> Vec<&Desc> {
        let counters = self.panics.desc().into_iter().chain(self.restarts.desc());
        self.up.desc().into_iter().chain(counters).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let components = self.runtime.components();
        self.up.reset();
        for (name, down) in components.all() {
            let up = self.up.with_label_values(&[name]);
            up.set(i64::from(down.is_none()));
        }
        for (task, count) in components.panics() {
            let panics = self.panics.with_label_values(&[task]);
            panics.inc_by(count.saturating_sub(panics.get()));
        }
        for (component, count) in components.restarts() {
            let restarts = self.restarts.with_label_values(&[component]);
            restarts.inc_by(count.saturating_sub(restarts.get()));
        }
        let counters = self.panics.collect().into_iter().chain(self.restarts.collect());
        self.up.collect().into_iter().chain(counters).collect()
    }
}
