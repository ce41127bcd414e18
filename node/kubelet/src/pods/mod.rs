//! Pods: one worker each, and everything a worker decides with.
//!
//! [`source`] follows the pods bound to this node and keeps one worker per uid. A [`worker`] goes round:
//! observe the runtime ([`observed`]), decide ([`plan`]), act, write the [`status`] if it differs.
//! [`admission`] rejects what this node never runs, [`preemption`] chooses the pods that end for a critical one, [`disruption`] has the order to end; [`restarts`] says whether a container starts again, [`backoff`] when, [`faults`] why one that runs is stopped; [`termination`] takes a pod down.
//! [`container_named`] finds a container of any kind. [`saved`] is what the next agent goes on with while the API server is away.
//! [`resize`] changes what running containers may use. [`ephemeral`] knows the containers that are put into a pod later, to look at it.
//!
//! Never: two workers for one pod, a decision on state older than the one just read, a status written
//! that equals the last one.

pub(crate) mod admission;
pub(crate) mod backoff;
mod conditions;
pub(crate) mod container_named;
pub(crate) mod disruption;
pub(crate) mod ephemeral;
mod faults;
pub(crate) mod observed;
mod phase;
pub(crate) mod plan;
pub(crate) mod preemption;
pub(crate) mod resize;
pub(crate) mod restarts;
pub(crate) mod saved;
pub(crate) mod source;
pub(crate) mod status;
pub(crate) mod status_patch;
pub(crate) mod termination;
mod unknown_ends;
pub(crate) mod worker;

#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

/// Kind of a container in its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContainerKind {
    /// Runs to its end before the others start.
    Init,
    /// Starts with the init containers and runs beside the others.
    Sidecar,
    /// Regular container of the pod.
    Regular,
    /// Put into the pod to look at it.
    Ephemeral,
}

/// A pod's specification; one without is treated as empty.
pub(crate) fn spec(pod: &Pod) -> &PodSpec {
    static EMPTY: std::sync::LazyLock<PodSpec> = std::sync::LazyLock::new(PodSpec::default);
    pod.spec.as_ref().unwrap_or(&EMPTY)
}

/// The init containers in order, and then the regular ones, each with what it is.
pub(crate) fn all_containers(pod: &Pod) -> impl Iterator<Item = (ContainerKind, &Container)> {
    let spec = spec(pod);
    let inits = spec
        .init_containers
        .iter()
        .flatten()
        .map(|container| (init_kind(container), container));
    inits.chain(
        spec.containers
            .iter()
            .map(|container| (ContainerKind::Regular, container)),
    )
}

fn init_kind(container: &Container) -> ContainerKind {
    match container.restart_policy.as_deref() {
        Some("Always") => ContainerKind::Sidecar,
        _ => ContainerKind::Init,
    }
}

/// Pods of at least this priority are critical.
pub(crate) const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// Reports whether a pod is critical, by its priority or as a static one: no other ends it to live, and the node does not evict
/// it.
pub(crate) fn is_critical(pod: &Pod) -> bool {
    is_static(pod) || spec(pod).priority.is_some_and(|own| own >= CRITICAL_PRIORITY)
}

/// Annotation of a pod's source: `api`, `file` or `http`.
pub(crate) const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// Annotation of a static pod: the hash of its file.
pub(crate) const CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// Annotation of a pod that only shows a static one: the hash of that.
pub(crate) const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";

fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Reports whether a pod comes from a file of the node or a URL. Of pods from the API server none says so ([`source`]).
pub(crate) fn is_static(pod: &Pod) -> bool {
    annotation(pod, CONFIG_SOURCE).is_some_and(|source| source != API_SOURCE)
}

const API_SOURCE: &str = "api";
/// Source of static pods of a URL.
pub(crate) const HTTP_SOURCE: &str = "http";

/// Reports whether a pod of the API server only shows a static one.
pub(crate) fn is_mirror(pod: &Pod) -> bool {
    annotation(pod, CONFIG_MIRROR).is_some()
}

/// Overrides what a pod of the API server says of its source.
fn mark_as_of_the_api(pod: &mut Pod) {
    let annotations = pod.metadata.annotations.as_mut();
    if let Some(source) = annotations.and_then(|all| all.get_mut(CONFIG_SOURCE)) {
        API_SOURCE.clone_into(source);
    }
}

/// `namespace/name`, for logs.
pub(crate) fn full_name(pod: &Pod) -> String {
    format!("{}/{}", namespace(pod), name(pod))
}

/// `name_namespace(uid)`, as upstream's messages name a pod.
pub(crate) fn full_name_with_uid(pod: &Pod) -> String {
    format!("{}_{}({})", name(pod), namespace(pod), uid(pod))
}

/// The pod's name.
pub(crate) fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// The pod's namespace.
pub(crate) fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

/// The pod's uid.
pub(crate) fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}
