//! Quality of service and limits. Pure.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use machinery_meta::Quantity;
use machinery_semantics::resources::{
    containers_requests, is_sidecar, pod_limits as effective_limits, pod_requests,
};
use node_cri::v1::LinuxContainerResources;
use node_sys::cgroup::CgroupResources;

use crate::pods::{ContainerKind, all_containers, is_critical, spec};

const PERIOD_US: i64 = 100_000;
const QUOTA_US_MIN: i64 = 1000;
const SHARES_MIN: i64 = 2;
const SHARES_MAX: i64 = 262_144;

/// The three classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Qos {
    /// Limits for everything, requests equal to them.
    Guaranteed,
    /// Some request or limit.
    Burstable,
    /// None.
    #[default]
    BestEffort,
}

/// A pod's class: what its status says, for the API server decided it at creation.
pub(crate) fn qos(pod: &Pod) -> Qos {
    match pod.status.as_ref().and_then(|status| status.qos_class.as_deref()) {
        Some("Guaranteed") => Qos::Guaranteed,
        Some("Burstable") => Qos::Burstable,
        Some("BestEffort") => Qos::BestEffort,
        _ => computed_qos(pod),
    }
}

fn computed_qos(pod: &Pod) -> Qos {
    let mut any = false;
    let mut all_equal = true;
    for (_, container) in all_containers(pod) {
        for name in ["cpu", "memory"] {
            let (request, limit) = (request(container, name), limit(container, name));
            any |= request.is_some() || limit.is_some();
            all_equal &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (any, all_equal) {
        (false, _) => Qos::BestEffort,
        (true, true) => Qos::Guaranteed,
        (true, false) => Qos::Burstable,
    }
}

fn amount(table: Option<&BTreeMap<String, ApiQuantity>>, name: &str) -> Option<Quantity> {
    let value = table?.get(name)?.0.parse::<Quantity>().ok()?;
    (!value.is_zero()).then_some(value)
}

/// Request of a container; a limit without a request counts as one.
pub(crate) fn request(container: &Container, name: &str) -> Option<Quantity> {
    let resources = container.resources.as_ref()?;
    amount(resources.requests.as_ref(), name)
}

/// Limit of a container.
pub(crate) fn limit(container: &Container, name: &str) -> Option<Quantity> {
    amount(container.resources.as_ref()?.limits.as_ref(), name)
}

/// Features of the memory controller of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MemoryFacts {
    /// The machine's memory.
    pub(crate) capacity_bytes: i64,
    /// All of a container's processes can be ended together when it is out of memory (`memory.oom.group`).
    pub(crate) oom_group: bool,
    /// Swap can be limited by itself (`memory.swap.max`).
    pub(crate) swap_limit: bool,
    /// Memory and swap can be limited together, as in cgroup v1 (`memory.memsw.limit_in_bytes`).
    pub(crate) memory_and_swap_limit: bool,
    /// Swap of the machine that containers have parts of (`LimitedSwap`); `None` where none has any.
    pub(crate) swap_bytes: Option<i64>,
}

/// The weight that stands for so much processor time, 2 to 262144.
pub(crate) fn shares(millis: i64) -> i64 {
    (millis * 1024 / 1000).clamp(SHARES_MIN, SHARES_MAX)
}

fn quota(millis: i64) -> i64 {
    (millis * PERIOD_US / 1000).max(QUOTA_US_MIN)
}

/// Limits of the pod's group: what the pod as a whole may use, or the sums where every container has one; and what its
/// runtime class needs beside.
pub(crate) fn pod_limits(pod: &Pod, pids_limit: Option<i64>) -> CgroupResources {
    let spec = spec(pod);
    let (requests, limits) = (pod_requests(spec), effective_limits(spec));
    let declared = |name: &str| {
        let whole = spec.resources.as_ref();
        let of_the_pod = whole
            .and_then(|whole| amount(whole.limits.as_ref(), name))
            .is_some();
        of_the_pod || all_containers(pod).all(|(_, container)| limit(container, name).is_some())
    };
    let has = |name: &str| declared(name) && !spec.containers.is_empty();
    CgroupResources {
        cpu_shares: u64::try_from(shares(requests.get("cpu").millis())).ok(),
        cpu_quota_us: Some(if has("cpu") {
            quota(limits.get("cpu").millis())
        } else {
            -1
        }),
        cpu_period_us: u64::try_from(PERIOD_US).ok(),
        memory_limit_bytes: has("memory").then(|| limits.get("memory").units()),
        pids_limit,
    }
}

/// Limits of one container, as CRI has them.
pub(crate) fn container_limits(
    pod: &Pod,
    container: &Container,
    memory: MemoryFacts,
) -> LinuxContainerResources {
    let cpu_limit = limit(container, "cpu").map(Quantity::millis);
    let cpu_request = request(container, "cpu")
        .map(Quantity::millis)
        .or(cpu_limit)
        .unwrap_or(0);
    let memory_limit = limit(container, "memory").map_or(0, Quantity::units);
    LinuxContainerResources {
        cpu_period: PERIOD_US,
        cpu_quota: cpu_limit.map_or(0, quota),
        cpu_shares: shares(cpu_request),
        memory_limit_in_bytes: memory_limit,
        // As much as memory alone: no swap beyond the limit, though some within it.
        memory_swap_limit_in_bytes: if memory.memory_and_swap_limit {
            memory_limit
        } else {
            0
        },
        oom_score_adj: oom_score_adjust(pod, container, memory.capacity_bytes),
        unified: unified(memory, swap_limit(pod, container, memory)),
        ..LinuxContainerResources::default()
    }
}

/// Files of cgroup v2 that CRI has no names for: upstream's defaults.
fn unified(memory: MemoryFacts, swap_bytes: i64) -> HashMap<String, String> {
    let oom_group = memory.oom_group.then(|| ("memory.oom.group", "1".to_owned()));
    let swap = memory
        .swap_limit
        .then(|| ("memory.swap.max", swap_bytes.to_string()));
    let files = oom_group.into_iter().chain(swap);
    files.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Reports whether a container has swap: one of a Burstable pod that is not critical, which requests memory, and not as much as
/// its limit.
pub(crate) fn may_swap(pod: &Pod, container: &Container, memory: MemoryFacts) -> bool {
    let (request, limit) = (request(container, "memory"), limit(container, "memory"));
    memory.swap_bytes.is_some() && !is_critical(pod) && qos(pod) == Qos::Burstable && request != limit
}

/// Swap of a container in bytes: the part of the machine's that its request is of the machine's memory.
fn swap_limit(pod: &Pod, container: &Container, memory: MemoryFacts) -> i64 {
    let Some(swap) = memory.swap_bytes.filter(|_| may_swap(pod, container, memory)) else {
        return 0;
    };
    let (request, whole) = (memory_request(container), memory.capacity_bytes);
    if whole <= 0 || request > whole {
        return 0;
    }
    let part = i128::from(request) * i128::from(swap) / i128::from(whole);
    i64::try_from(part).unwrap_or(0)
}

/// Least priority that counts as the system's own.
const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// OOM score adjustment of a container: lower with a larger memory request, and for a sidecar at most that of the
/// containers it serves.
fn oom_score_adjust(pod: &Pod, container: &Container, memory_capacity: i64) -> i64 {
    const GUARANTEED: i64 = -997;
    const BEST_EFFORT: i64 = 1000;
    let spec = spec(pod);
    let critical = spec
        .priority
        .is_some_and(|priority| priority >= SYSTEM_CRITICAL_PRIORITY)
        && spec.priority_class_name.as_deref() == Some("system-node-critical");
    if critical {
        return GUARANTEED;
    }
    match qos(pod) {
        Qos::Guaranteed => GUARANTEED,
        Qos::BestEffort => BEST_EFFORT,
        Qos::Burstable => {
            let left = unrequested_memory(pod);
            let score = |bytes: i64| 1000 - 1000 * (bytes + left) / memory_capacity.max(1);
            let own = score(memory_request(container));
            let score = match is_sidecar(container) {
                true => own.min(score(
                    spec.containers.iter().map(memory_request).min().unwrap_or(0),
                )),
                false => own,
            };
            score.clamp(1000 + GUARANTEED, BEST_EFFORT - 1)
        }
    }
}

fn memory_request(container: &Container) -> i64 {
    request(container, "memory").map_or(0, Quantity::units)
}

/// Memory request of the pod beyond those of its containers, divided by their number.
fn unrequested_memory(pod: &Pod) -> i64 {
    let spec = spec(pod);
    let whole = spec.resources.as_ref();
    let Some(requested) = whole.and_then(|whole| amount(whole.requests.as_ref(), "memory")) else {
        return 0;
    };
    let counted = all_containers(pod).filter(|(kind, _)| *kind != ContainerKind::Init);
    let count = i64::try_from(counted.count()).unwrap_or(1).max(1);
    let of_containers = containers_requests(spec).get("memory").units();
    (requested.units() - of_containers).max(0) / count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(resources: &str) -> Pod {
        let text = format!(
            r#"{{"metadata":{{"uid":"u"}},"spec":{{"containers":[{{"name":"c","resources":{resources}}}]}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn memory(capacity_bytes: i64) -> MemoryFacts {
        MemoryFacts {
            capacity_bytes,
            ..MemoryFacts::default()
        }
    }

    fn score(spec: serde_json::Value, container: usize) -> i64 {
        let pod: Pod = serde_json::from_value(serde_json::json!({"spec": spec})).unwrap();
        let all: Vec<Container> = all_containers(&pod)
            .map(|(_, container)| container.clone())
            .collect();
        oom_score_adjust(&pod, &all[container], 1 << 30)
    }

    #[test]
    fn oom_score_of_a_critical_pod_is_the_guaranteed_one() {
        let spec = |class: &str, priority: i64| serde_json::json!({"priority": priority, "priorityClassName": class, "containers": [{"name": "c"}]});
        assert_eq!(score(spec("system-node-critical", 2_000_001_000), 0), -997);
        assert_eq!(score(spec("system-cluster-critical", 2_000_000_000), 0), 1000);
        assert_eq!(score(spec("system-node-critical", 0), 0), 1000);
    }

    #[test]
    fn oom_score_of_a_sidecar_is_no_higher_than_its_containers() {
        let asks = |memory: &str| serde_json::json!({"requests": {"memory": memory}});
        let spec = serde_json::json!({
            "initContainers": [{"name": "s", "restartPolicy": "Always", "resources": asks("1Mi")}],
            "containers": [{"name": "a", "resources": asks("512Mi")}, {"name": "b", "resources": asks("256Mi")}]
        });
        let scores: Vec<i64> = (0..3).map(|place| score(spec.clone(), place)).collect();
        assert_eq!(scores, [750, 500, 750]);
    }

    #[test]
    fn oom_score_counts_what_the_pod_as_a_whole_asks_for() {
        let spec = serde_json::json!({
            "resources": {"requests": {"memory": "768Mi"}},
            "containers": [{"name": "a", "resources": {"requests": {"memory": "256Mi"}}}, {"name": "b"}]
        });
        assert_eq!([0, 1].map(|place| score(spec.clone(), place)), [500, 750]);
    }

    #[test]
    fn containers_of_cgroup_v2_end_together_and_do_not_swap() {
        let facts = MemoryFacts {
            oom_group: true,
            swap_limit: true,
            ..memory(1 << 30)
        };
        let best = pod("{}");
        let files = container_limits(&best, &spec(&best).containers[0], facts).unified;
        let expected = [("memory.oom.group", "1"), ("memory.swap.max", "0")];
        assert_eq!(
            files,
            expected
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into()
        );
        assert!(unified(memory(0), 0).is_empty(), "cgroup v1");
    }

    #[test]
    fn swap_is_shared_by_requests_among_burstable_containers() {
        let facts = MemoryFacts {
            swap_limit: true,
            swap_bytes: Some(1 << 30),
            ..memory(4 << 30)
        };
        let swap = |pod: &Pod, facts: MemoryFacts| {
            let limits = container_limits(pod, &spec(pod).containers[0], facts);
            limits.unified["memory.swap.max"].parse::<i64>().unwrap()
        };
        let some = pod(r#"{"requests":{"memory":"1Gi"},"limits":{"memory":"2Gi"}}"#);
        assert_eq!(swap(&some, facts), 256 << 20);
        assert_eq!(swap(&pod(r#"{"requests":{"memory":"512Mi"}}"#), facts), 128 << 20);
        assert_eq!(
            swap(&pod(r#"{"requests":{"memory":"8Gi"}}"#), facts),
            0,
            "more than there is"
        );
        for none in [
            "{}",
            r#"{"requests":{"cpu":"1"}}"#,
            r#"{"requests":{"memory":"1Gi","cpu":"1"},"limits":{"memory":"1Gi"}}"#,
            r#"{"requests":{"memory":"1Gi","cpu":"1"},"limits":{"memory":"1Gi","cpu":"1"}}"#,
        ] {
            assert_eq!(swap(&pod(none), facts), 0, "{none}");
        }
        let mut critical = some.clone();
        critical.spec.as_mut().unwrap().priority = Some(2_000_000_000);
        assert_eq!(swap(&critical, facts), 0);
        let without = MemoryFacts {
            swap_bytes: None,
            ..facts
        };
        assert_eq!(swap(&some, without), 0, "NoSwap");
        let together = MemoryFacts {
            memory_and_swap_limit: true,
            ..memory(4 << 30)
        };
        let limits = container_limits(&some, &spec(&some).containers[0], together);
        assert_eq!(limits.memory_swap_limit_in_bytes, 2 << 30, "cgroup v1");
    }

    #[test]
    fn classes_and_limits_follow_the_numbers() {
        let best = pod("{}");
        assert_eq!(
            container_limits(&best, &spec(&best).containers[0], memory(1 << 30)).oom_score_adj,
            1000
        );
        let guaranteed =
            pod(r#"{"limits":{"cpu":"200m","memory":"64Mi"},"requests":{"cpu":"200m","memory":"64Mi"}}"#);
        let limits = container_limits(&guaranteed, &spec(&guaranteed).containers[0], memory(1 << 30));
        assert_eq!(
            (limits.cpu_quota, limits.cpu_shares, limits.memory_limit_in_bytes),
            (20_000, 204, 64 << 20)
        );
        assert_eq!(pod_limits(&guaranteed, None).memory_limit_bytes, Some(64 << 20));
        let burstable = pod(r#"{"requests":{"memory":"512Mi"}}"#);
        assert_eq!(
            container_limits(&burstable, &spec(&burstable).containers[0], memory(1 << 30)).oom_score_adj,
            500
        );
        assert_eq!(pod_limits(&burstable, None).cpu_quota_us, Some(-1));
    }

    #[test]
    fn pod_cgroup_includes_runtime_overhead() {
        let mut pod =
            pod(r#"{"limits":{"cpu":"200m","memory":"64Mi"},"requests":{"cpu":"200m","memory":"64Mi"}}"#);
        let amounts = |cpu: &str, memory: &str| {
            let amounts = [("cpu", cpu), ("memory", memory)];
            Some(
                amounts
                    .map(|(name, amount)| (name.to_owned(), ApiQuantity(amount.to_owned())))
                    .into(),
            )
        };
        pod.spec.as_mut().unwrap().overhead = amounts("50m", "16Mi");
        let limits = pod_limits(&pod, None);
        assert_eq!(
            (limits.cpu_shares, limits.cpu_quota_us),
            (Some(256), Some(25_000))
        );
        assert_eq!(limits.memory_limit_bytes, Some(80 << 20));
        let whole = pod.spec.as_mut().unwrap().resources.get_or_insert_default();
        whole.limits = amounts("1", "1Gi");
        assert_eq!(
            pod_limits(&pod, None).memory_limit_bytes,
            Some((1 << 30) + (16 << 20))
        );
    }
}
