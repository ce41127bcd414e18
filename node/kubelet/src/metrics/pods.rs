//! Pods and their containers: how they start, end, and are worked on.

use k8s_openapi::api::core::v1::{Container, Pod};
use machinery_runtime::Runtime;
use machinery_runtime::metrics::{ComponentMetrics, Family};
use std::time::Duration;

use super::START_SECONDS;
use crate::containers::resources::{Qos, qos};
use crate::pods::{ContainerKind, spec};

const STARTED_PODS: Family = Family::new(
    "kubelet_started_pods_total",
    "[ALPHA] Cumulative number of pods started",
    &[],
);
const POD_ERRORS: Family = Family::new(
    "kubelet_started_pods_errors_total",
    "[ALPHA] Cumulative number of errors when starting pods",
    &[],
);
const STARTED_CONTAINERS: Family = Family::new(
    "kubelet_started_containers_total",
    "[ALPHA] Cumulative number of containers started",
    &["container_type"],
);
const CONTAINER_ERRORS: Family = Family::new(
    "kubelet_started_containers_errors_total",
    "[ALPHA] Cumulative number of errors when starting containers",
    &["container_type", "code"],
);
const CONTAINERS: Family = Family::new(
    "kubelet_containers_per_pod_count",
    "[ALPHA] The number of containers per pod.",
    &[],
)
.exponential(1.0, 2.0, 5);
const WORKER: Family = Family::new(
    "kubelet_pod_worker_duration_seconds",
    "[ALPHA] Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync",
    &["operation_type"],
);
const WORKER_START: Family = Family::new(
    "kubelet_pod_worker_start_duration_seconds",
    "[ALPHA] Duration in seconds from kubelet seeing a pod to starting a worker.",
    &[],
);
const START: Family = Family::new(
    "kubelet_pod_start_duration_seconds",
    "[ALPHA] Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
    &[],
)
.listed(&START_SECONDS);
const START_SLI: Family = Family::new(
    "kubelet_pod_start_sli_duration_seconds",
    "[ALPHA] Duration in seconds to start a pod, excluding time to pull images and run init containers, measured from \
     pod creation timestamp to when all its containers are reported as started and observed via watch",
    &[],
)
.listed(&START_SECONDS);
const START_TOTAL: Family = Family::new(
    "kubelet_pod_start_total_duration_seconds",
    "[ALPHA] Duration in seconds to start a pod since creation, including time to pull images and run init containers, \
     measured from pod creation timestamp to when all its containers are reported as started and observed via watch",
    &[],
)
.listed(&START_SECONDS);
const FIRST_NETWORK: Family = Family::new(
    "kubelet_first_network_pod_start_sli_duration_seconds",
    "[INTERNAL] Duration in seconds to start the first network pod, excluding time to pull images and run init \
     containers, measured from pod creation timestamp to when all its containers are reported as started and observed via \
     watch",
    &[],
);
const STATUS: Family = Family::new(
    "kubelet_pod_status_sync_duration_seconds",
    "[ALPHA] Duration in seconds to sync a pod status update. Measures time from detection of a change to pod status until \
     the API is successfully updated for that pod, even if multiple intevening changes to pod status occur.",
    &[],
)
.listed(&[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0]);
const RELIST: Family = Family::new(
    "kubelet_pleg_relist_duration_seconds",
    "[ALPHA] Duration in seconds for relisting pods in PLEG.",
    &[],
);
const RELIST_INTERVAL: Family = Family::new(
    "kubelet_pleg_relist_interval_seconds",
    "[ALPHA] Interval in seconds between relisting in PLEG.",
    &[],
);
const LAST_SEEN: Family = Family::new(
    "kubelet_pleg_last_seen_seconds",
    "[ALPHA] Timestamp in seconds when PLEG was last seen active.",
    &[],
);
const ORPHANS: Family = Family::new(
    "kubelet_orphaned_runtime_pods_total",
    "[ALPHA] Number of pods that have been detected in the container runtime without being already known to the pod \
     worker. This typically indicates the kubelet was restarted while a pod was force deleted in the API or in the local \
     configuration, which is unusual.",
    &[],
);
const REJECTED: Family = Family::new(
    "kubelet_admission_rejections_total",
    "[ALPHA] Cumulative number pod admission rejections by the Kubelet.",
    &["reason"],
);
const POD_LEVEL: Family = Family::new(
    "kubelet_pod_level_resources_admission_total",
    "[ALPHA] Total number of pods admitted during Kubelet admission, categorized by resource configuration mode \
     (pod_and_container_level, pod_level, container_level, or empty for unconfigured/BestEffort) and QoS class.",
    &["config_mode", "qos_class"],
);

/// Reasons of rejections that have a label of their own.
const REASONS: [&str; 21] = [
    "AppArmor",
    "Evicted",
    "InitContainerRestartPolicyForbidden",
    "InvalidNodeInfo",
    "NodeShutdown",
    "OutOfcpu",
    "OutOfephemeral-storage",
    "OutOfmemory",
    "OutOfpods",
    "PodFeatureUnsupported",
    "PodLevelResourcesNotSupported",
    "PodOSNotSupported",
    "PodOSSelectorNodeLabelDoesNotMatch",
    "SupplementalGroupsPolicyNotSupported",
    "SysctlForbidden",
    "TopologyAffinityError",
    "UnexpectedAdmissionError",
    "UnexpectedPredicateFailureType",
    "UnknownReason",
    "VolumeAttachmentLimitExceeded",
    "node(s) had taints that the pod didn't tolerate",
];

pub(crate) fn begin(metrics: &ComponentMetrics) {
    for counters in [
        &STARTED_PODS,
        &POD_ERRORS,
        &STARTED_CONTAINERS,
        &CONTAINER_ERRORS,
        &ORPHANS,
        &REJECTED,
        &POD_LEVEL,
    ] {
        drop(metrics.counters(counters));
    }
    for histograms in [
        &CONTAINERS,
        &WORKER,
        &WORKER_START,
        &START,
        &START_SLI,
        &START_TOTAL,
        &STATUS,
        &RELIST,
        &RELIST_INTERVAL,
    ] {
        drop(metrics.histograms(histograms));
    }
    let _ = (metrics.gauges(&FIRST_NETWORK), metrics.gauges(&LAST_SEEN));
}

/// Counts in the figures of an agent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PodMetrics<'a>(&'a ComponentMetrics);

impl<'a> PodMetrics<'a> {
    pub(crate) fn of(runtime: &'a Runtime) -> Self {
        Self(runtime.metrics())
    }

    fn count(&self, family: &Family, labels: &[&str]) {
        self.0.counters(family).of(labels).inc();
    }

    fn took(&self, family: &Family, labels: &[&str], duration: Duration) {
        self.0
            .histograms(family)
            .of(labels)
            .observe(duration.as_secs_f64());
    }

    /// Counts a try to start a pod's sandbox.
    pub(crate) fn pod_started(&self, failed: bool) {
        self.count(&STARTED_PODS, &[]);
        if failed {
            self.count(&POD_ERRORS, &[]);
        }
    }

    /// Counts a try to start a container; the code is the reason that it waits with.
    pub(crate) fn container_started(&self, kind: ContainerKind, failure: Option<&str>) {
        let kind = container_type(kind);
        self.count(&STARTED_CONTAINERS, &[kind]);
        if let Some(code) = failure {
            self.count(&CONTAINER_ERRORS, &[kind, code]);
        }
    }

    /// A worker has begun with a pod that it was given so long ago.
    pub(crate) fn worker_began(&self, pod: &Pod, since: Duration) {
        let containers = self.0.histograms(&CONTAINERS).of(&[]);
        containers.observe(spec(pod).containers.len() as f64);
        self.took(&WORKER_START, &[], since);
    }

    /// A worker has gone once through what is to be done: `create`, `update`, `sync` or `terminated`.
    pub(crate) fn worked(&self, operation: &str, took: Duration) {
        self.took(&WORKER, &[operation], took);
    }

    /// A pod has begun to run.
    pub(crate) fn pod_runs(&self, since_seen: Duration) {
        self.took(&START, &[], since_seen);
    }

    /// All containers of a pod have started.
    pub(crate) fn pod_is_up(&self, pod: &Pod, start: PodStart) {
        self.took(&START_TOTAL, &[], start.total);
        if is_stateful(pod) {
            return;
        }
        let own = start.total.saturating_sub(start.pulls + start.inits);
        self.took(&START_SLI, &[], own);
        let first = self.0.gauges(&FIRST_NETWORK).of(&[]);
        if spec(pod).host_network != Some(true) && first.get() == 0.0 {
            first.set(own.as_secs_f64());
        }
    }

    /// A status was written so long after it had changed.
    pub(crate) fn status_written(&self, after: Duration) {
        self.took(&STATUS, &[], after);
    }

    /// The runtime was listed, so long after the last time.
    pub(crate) fn relisted(&self, took: Duration, interval: Option<Duration>, at_seconds: i64) {
        self.took(&RELIST, &[], took);
        if let Some(interval) = interval {
            self.took(&RELIST_INTERVAL, &[], interval);
        }
        self.0.gauges(&LAST_SEEN).of(&[]).set(at_seconds as f64);
    }

    /// The runtime has something of a pod that is not known.
    pub(crate) fn orphan_found(&self) {
        self.count(&ORPHANS, &[]);
    }

    /// The node does not run a pod, for this reason. Names of extended resources are no labels.
    pub(crate) fn rejected(&self, reason: &str) {
        let known = REASONS.into_iter().find(|own| *own == reason);
        let others = if reason.starts_with("OutOf") {
            "OutOfExtendedResources"
        } else {
            "Other"
        };
        self.count(&REJECTED, &[known.unwrap_or(others)]);
    }

    /// The node runs a pod.
    pub(crate) fn admitted(&self, pod: &Pod) {
        let class = match qos(pod) {
            Qos::Guaranteed => "guaranteed",
            Qos::Burstable => "burstable",
            Qos::BestEffort => "besteffort",
        };
        self.count(&POD_LEVEL, &[config_mode(pod), class]);
    }
}

/// Durations of a pod's start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PodStart {
    /// From its creation until all its containers had started.
    pub(crate) total: Duration,
    /// In which images were pulled.
    pub(crate) pulls: Duration,
    /// In which init containers ran.
    pub(crate) inits: Duration,
}

fn container_type(kind: ContainerKind) -> &'static str {
    match kind {
        ContainerKind::Init | ContainerKind::Sidecar => "init_container",
        ContainerKind::Regular => "container",
        ContainerKind::Ephemeral => "ephemeral_container",
    }
}

/// Upstream's rule of the SLI: a volume of another kind than these makes a pod stateful.
fn is_stateful(pod: &Pod) -> bool {
    let volumes = spec(pod).volumes.iter().flatten();
    let mut kept = volumes.filter(|own| {
        own.secret.is_none()
            && own.config_map.is_none()
            && own.downward_api.is_none()
            && own.empty_dir.is_none()
            && own.projected.is_none()
    });
    kept.next().is_some()
}

fn config_mode(pod: &Pod) -> &'static str {
    let spec = spec(pod);
    let whole = spec.resources.as_ref();
    let of_pod = whole.is_some_and(|own| own.requests.is_some() || own.limits.is_some());
    let has = |own: &Container| {
        let resources = own.resources.as_ref();
        resources.is_some_and(|own| own.requests.is_some() || own.limits.is_some())
    };
    let all = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    match (of_pod, all.into_iter().any(has)) {
        (true, true) => "pod_and_container_level",
        (true, false) => "pod_level",
        (false, true) => "container_level",
        (false, false) => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    #[tokio::test]
    async fn pod_starts_are_measured_without_pulls_and_init_containers() {
        let runtime = Runtime::real();
        let metrics = PodMetrics::of(&runtime);
        let seconds = Duration::from_secs;
        let start = PodStart {
            total: seconds(10),
            pulls: seconds(3),
            inits: seconds(5),
        };
        metrics.pod_is_up(&pod(json!({"containers": []})), start);
        let volumes = json!([{"name": "v", "hostPath": {"path": "/"}}]);
        metrics.pod_is_up(&pod(json!({"containers": [], "volumes": volumes})), start);
        let text = runtime.metrics().text();
        for sample in [
            "kubelet_pod_start_total_duration_seconds_sum 20",
            "kubelet_pod_start_sli_duration_seconds_sum 2",
            "kubelet_pod_start_sli_duration_seconds_count 1",
            "kubelet_first_network_pod_start_sli_duration_seconds 2",
        ] {
            assert!(text.lines().any(|line| line == sample), "{sample}\n{text}");
        }
    }

    #[tokio::test]
    async fn rejections_are_counted_by_a_fixed_list_of_reasons() {
        let runtime = Runtime::real();
        let metrics = PodMetrics::of(&runtime);
        for reason in ["OutOfcpu", "OutOfexample.com/gpu", "OutOfexample.com/nic", "Mine"] {
            metrics.rejected(reason);
        }
        let text = runtime.metrics().text();
        for (reason, count) in [("OutOfcpu", 1), ("OutOfExtendedResources", 2), ("Other", 1)] {
            let sample = format!("kubelet_admission_rejections_total{{reason=\"{reason}\"}} {count}\n");
            assert!(text.contains(&sample), "{sample}\n{text}");
        }
    }

    #[test]
    fn resources_are_of_the_pod_or_of_its_containers() {
        let requests = json!({"requests": {"cpu": "1"}});
        let container = json!([{"name": "main", "resources": requests}]);
        let plain = json!([{"name": "main"}]);
        for (spec, mode) in [
            (json!({"containers": plain}), ""),
            (json!({"containers": container}), "container_level"),
            (json!({"containers": plain, "resources": requests}), "pod_level"),
            (
                json!({"containers": container, "resources": requests}),
                "pod_and_container_level",
            ),
        ] {
            assert_eq!(config_mode(&pod(spec)), mode);
        }
    }
}
