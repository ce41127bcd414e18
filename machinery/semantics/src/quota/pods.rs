//! Pods: what they request, under several names, until they have ended.

use super::measured::{Counted, Measured, PodScopes, Scopes, Usage, amounts};
use crate::ResourceList;
use crate::resources::{is_pod_level_resource, pod_limits_with_status, pod_requests_with_status};
use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, PodSpec, PodStatus, ResourceRequirements};
use k8s_openapi::jiff::SignedDuration;
use machinery_meta::Quantity;
use std::collections::{BTreeMap, BTreeSet};

const COUNT: &str = "count/pods";
const RESOURCES: [&str; 11] = [
    COUNT,
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];
/// Resources that every container must name where a quota bounds them.
const REQUIRED: [&str; 6] = [
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "limits.cpu",
    "limits.memory",
];
const HUGE_PAGES: &str = "hugepages-";
const REQUESTS: &str = "requests.";
const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";
/// A refusal names at most so many containers for each resource; upstream names all.
const MAX_NAMED_CONTAINERS: usize = 100;

/// A resource of the `kubernetes.io` name space, to which bare names belong.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// An extended resource, as a quota names it.
pub(super) fn is_extended_for_quota(name: &str) -> bool {
    let Some(own) = name.strip_prefix(REQUESTS) else {
        return false;
    };
    !is_native(name) || own.starts_with(DEVICE_CLASS)
}

/// An extended resource, as a pod names it.
fn is_extended(name: &str) -> bool {
    (!is_native(name) && !name.starts_with(REQUESTS)) || name.starts_with(DEVICE_CLASS)
}

pub(super) fn matches_resource(name: &str) -> bool {
    let huge = name
        .strip_prefix(REQUESTS)
        .unwrap_or(name)
        .starts_with(HUGE_PAGES);
    RESOURCES.contains(&name) || huge || is_extended_for_quota(name)
}

/// Usage of a pod that requests this; of one that has ended, that it is there.
pub(super) fn usage(requests: &ResourceList, limits: &ResourceList, is_counted: bool) -> ResourceList {
    let one = Quantity::from_units(1);
    let mut usage = BTreeMap::from([(COUNT.to_owned(), one)]);
    if is_counted {
        usage.insert("pods".to_owned(), one);
        for (name, amount) in requests.iter() {
            if matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with(HUGE_PAGES) {
                usage.insert(name.to_owned(), amount);
                usage.insert(format!("{REQUESTS}{name}"), amount);
            }
            if is_extended(name) {
                usage.insert(format!("{REQUESTS}{name}"), amount);
            }
        }
        for (name, amount) in limits.iter() {
            if matches!(name, "cpu" | "memory" | "ephemeral-storage") {
                usage.insert(format!("limits.{name}"), amount);
            }
        }
    }
    ResourceList(usage)
}

/// The measure of a pod.
pub fn pod(pod: &Pod) -> Measured {
    let (Some(spec), status) = (pod.spec.as_ref(), pod.status.as_ref()) else {
        return Measured::default();
    };
    Measured {
        usage: Usage::Pod {
            requests: amounts(&pod_requests_with_status(spec, status)),
            limits: amounts(&pod_limits_with_status(spec, status)),
        },
        counted: counted(pod),
        scopes: Scopes::Pod(PodScopes {
            is_terminating: spec.active_deadline_seconds.is_some_and(|seconds| seconds >= 0),
            is_best_effort: is_best_effort(spec, status),
            has_cross_namespace_affinity: has_cross_namespace_affinity(spec),
            priority_class: spec.priority_class_name.as_deref().unwrap_or_default().into(),
        }),
    }
}

fn counted(pod: &Pod) -> Counted {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if crate::pod_status::is_terminal_phase(phase) {
        return Counted::Never;
    }
    let (Some(deleted), Some(grace)) = (
        pod.metadata.deletion_timestamp.as_ref(),
        pod.metadata.deletion_grace_period_seconds,
    ) else {
        return Counted::Always;
    };
    let end = deleted.0.saturating_add(SignedDuration::from_secs(grace));
    Counted::Until(end.unwrap_or(deleted.0))
}

type Api = BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>;

fn requests(resources: Option<&ResourceRequirements>) -> Option<&Api> {
    resources.and_then(|own| own.requests.as_ref())
}

fn limits(resources: Option<&ResourceRequirements>) -> Option<&Api> {
    resources.and_then(|own| own.limits.as_ref())
}

fn has_pod_level_resources(spec: &PodSpec) -> bool {
    let own = spec.resources.as_ref();
    let names = requests(own)
        .into_iter()
        .chain(limits(own))
        .flat_map(BTreeMap::keys);
    names.into_iter().any(|name| is_pod_level_resource(name))
}

fn is_best_effort(spec: &PodSpec, status: Option<&PodStatus>) -> bool {
    if let Some(class) = status.and_then(|status| status.qos_class.as_deref()) {
        return class == "BestEffort";
    }
    let asks = |resources: Option<&ResourceRequirements>| {
        let sides = [requests(resources), limits(resources)];
        sides.into_iter().any(|side| {
            let list = ResourceList::from_api(side);
            ["cpu", "memory"].iter().any(|name| !list.get(name).is_zero())
        })
    };
    if has_pod_level_resources(spec) {
        return !asks(spec.resources.as_ref());
    }
    let mut all = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    !all.any(|container| asks(container.resources.as_ref()))
}

fn has_cross_namespace_affinity(spec: &PodSpec) -> bool {
    let crosses = |term: &PodAffinityTerm| {
        term.namespace_selector.is_some() || term.namespaces.as_ref().is_some_and(|own| !own.is_empty())
    };
    let Some(affinity) = &spec.affinity else {
        return false;
    };
    let near = affinity.pod_affinity.iter();
    let near = near.map(|own| {
        (
            &own.required_during_scheduling_ignored_during_execution,
            &own.preferred_during_scheduling_ignored_during_execution,
        )
    });
    let far = affinity.pod_anti_affinity.iter();
    let far = far.map(|own| {
        (
            &own.required_during_scheduling_ignored_during_execution,
            &own.preferred_during_scheduling_ignored_during_execution,
        )
    });
    near.chain(far).any(|(required, preferred)| {
        required.iter().flatten().any(crosses)
            || preferred
                .iter()
                .flatten()
                .any(|own| crosses(&own.pod_affinity_term))
    })
}

/// Containers that do not name a resource which a quota may bound.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MissingResources(BTreeMap<&'static str, BTreeSet<String>>);

/// The containers of a pod that would be refused under quotas for what they do not name. A pod that requests itself need
/// not.
pub fn missing_resources(spec: &PodSpec) -> MissingResources {
    let mut missing = MissingResources::default();
    if has_pod_level_resources(spec) {
        return missing;
    }
    for container in spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
    {
        let own = container.resources.as_ref();
        for name in REQUIRED {
            let (side, resource) = match name.strip_prefix("limits.") {
                Some(resource) => (limits(own), resource),
                None => (requests(own), name.strip_prefix(REQUESTS).unwrap_or(name)),
            };
            if !side.is_some_and(|side| side.contains_key(resource)) {
                let names = missing.0.entry(name).or_default();
                names.insert(container.name.clone());
                if names.len() > MAX_NAMED_CONTAINERS {
                    names.pop_last();
                }
            }
        }
    }
    missing
}

impl MissingResources {
    /// The words for a quota that bounds these resources.
    pub(super) fn under<'n>(&self, resources: impl Iterator<Item = &'n str>) -> Option<String> {
        let bounded: BTreeSet<&str> = resources.collect();
        let missing = self.0.iter().filter(|(name, _)| bounded.contains(*name));
        let words: Vec<String> = missing
            .map(|(name, containers)| {
                let containers: Vec<&str> = containers.iter().map(String::as_str).collect();
                format!("{name} for: {}", containers.join(","))
            })
            .collect();
        (!words.is_empty()).then(|| format!("must specify {}", words.join("; ")))
    }
}
