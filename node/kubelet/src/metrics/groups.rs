//! Durations of changes of control groups.

use machinery_runtime::Runtime;
use machinery_runtime::metrics::{ComponentMetrics, Family, Histograms};
use node_sys::cgroup::{CgroupError, CgroupResources, CgroupStats, Cgroups, GroupFigures, HugePageLimits};
use std::sync::Arc;

const DURATION: Family = Family::new(
    "kubelet_cgroup_manager_duration_seconds",
    "[ALPHA] Duration in seconds for cgroup manager operations. Broken down by method.",
    &["operation_type"],
);

pub(crate) fn begin(metrics: &ComponentMetrics) {
    drop(metrics.histograms(&DURATION));
}

/// Control groups whose changes are timed.
#[derive(Debug)]
pub(crate) struct TimedCgroups {
    runtime: Runtime,
    inner: Arc<dyn Cgroups>,
    durations: Histograms,
}

impl TimedCgroups {
    pub(crate) fn new(runtime: &Runtime, inner: Arc<dyn Cgroups>) -> Self {
        Self {
            runtime: runtime.clone(),
            inner,
            durations: runtime.metrics().histograms(&DURATION),
        }
    }

    fn timed<T>(&self, operation: &'static str, work: impl FnOnce() -> T) -> T {
        let began = self.runtime.monotonic();
        let outcome = work();
        let took = self.runtime.monotonic() - began;
        self.durations.of(&[operation]).observe(took.as_secs_f64());
        outcome
    }
}

impl Cgroups for TimedCgroups {
    fn apply(&self, path: &str, resources: &CgroupResources) -> Result<(), CgroupError> {
        // Upstream's word for a group that is there; making one is its `create`.
        let operation = if self.inner.exists(path) {
            "update"
        } else {
            "create"
        };
        self.timed(operation, || self.inner.apply(path, resources))
    }

    fn limit_huge_pages(&self, path: &str, limits: &HugePageLimits) -> Result<(), CgroupError> {
        self.timed("update", || self.inner.limit_huge_pages(path, limits))
    }

    fn remove(&self, path: &str) -> Result<(), CgroupError> {
        self.timed("destroy", || self.inner.remove(path))
    }

    fn limits(&self, path: &str) -> CgroupResources {
        self.inner.limits(path)
    }

    fn stats(&self, path: &str) -> CgroupStats {
        self.inner.stats(path)
    }

    fn figures(&self, path: &str) -> Option<GroupFigures> {
        self.inner.figures(path)
    }

    fn exists(&self, path: &str) -> bool {
        self.inner.exists(path)
    }

    fn children(&self, path: &str) -> Vec<String> {
        self.inner.children(path)
    }

    fn version(&self) -> u8 {
        self.inner.version()
    }

    fn has_memory_file(&self, path: &str, name: &str) -> bool {
        self.inner.has_memory_file(path, name)
    }
}
