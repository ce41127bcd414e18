//! Panics of tasks, components that are down because of them, and what this server leads.

use machinery_runtime::Runtime;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounterVec, IntGaugeVec, Opts};

/// Reads [`Runtime::components`] at each request for metrics.
pub(super) struct ComponentsCollector {
    runtime: Runtime,
    up: IntGaugeVec,
    panics: IntCounterVec,
    restarts: IntCounterVec,
    leads: IntGaugeVec,
    slow_paths: IntCounterVec,
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
            "Restarts of components after a panic or an error.",
        );
        let leads = Opts::new(
            "leader_election_master_status",
            "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. \
             'name' is the string used to identify the lease. Please make sure to group by name.",
        );
        let slow_paths = Opts::new(
            "leader_election_slowpath_total",
            "Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify the \
             lease. Please make sure to group by name.",
        );
        Ok(Self {
            runtime,
            leads: IntGaugeVec::new(leads, &["name"])?,
            slow_paths: IntCounterVec::new(slow_paths, &["name"])?,
            up: IntGaugeVec::new(up, &["component"])?,
            panics: IntCounterVec::new(panics, &["task"])?,
            restarts: IntCounterVec::new(restarts, &["component"])?,
        })
    }
}

impl Collector for ComponentsCollector {
    fn desc(&self) -> Vec<&Desc> {
        let counters = self.panics.desc().into_iter().chain(self.restarts.desc());
        let elections = self.leads.desc().into_iter().chain(self.slow_paths.desc());
        let components = self.up.desc().into_iter().chain(counters);
        components.chain(elections).collect()
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
        for (lease, election) in components.elections() {
            let leads = self.leads.with_label_values(&[lease.as_str()]);
            leads.set(i64::from(election.leads));
            let slow = self.slow_paths.with_label_values(&[lease.as_str()]);
            slow.inc_by(election.slow_paths.saturating_sub(slow.get()));
        }
        let counters = self.panics.collect().into_iter().chain(self.restarts.collect());
        let elections = self.leads.collect().into_iter().chain(self.slow_paths.collect());
        let components = self.up.collect().into_iter().chain(counters);
        components.chain(elections).collect()
    }
}
