//! Words of an eviction, upstream's, down to the blank at their end. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use machinery_meta::Quantity;
use machinery_semantics::ResourceList;

use super::observations::Observations;
use super::signal::Starved;
use super::thresholds::EvictionThreshold;
use super::usage::{ContainerUsage, PodUsage};
use crate::pods::{name, spec};

/// Message of an evicted pod, and annotations of its event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct EvictionMessage {
    /// For status, condition and event.
    pub(crate) text: String,
    /// Offenders, for programs that read events.
    pub(crate) annotations: BTreeMap<String, String>,
}

/// The message for a pod that ends for a resource of the node.
pub(crate) fn message(
    resource: Starved,
    pod: &Pod,
    usage: Option<&PodUsage>,
    thresholds: &[EvictionThreshold],
    observations: &Observations,
) -> EvictionMessage {
    let mut text = format!("The node was low on resource: {}. ", resource.name());
    text.extend(threshold_text(resource, thresholds, observations));
    let mut annotations = BTreeMap::new();
    let Some(usage) = usage else {
        return EvictionMessage { text, annotations };
    };
    let mut note = |key: &str, value: String| drop(annotations.insert(key.to_owned(), value));
    if let Some((used, request)) = pod_level(resource, pod, usage) {
        text += &exceeding("Pod", name(pod), used, request, resource);
        note("offending_pod", name(pod).to_owned());
        note("offending_pod_usage", used.to_string());
    }
    let offenders = offenders(resource, pod, usage);
    for (name, used, request) in &offenders {
        text += &exceeding("Container", name, *used, *request, resource);
    }
    let names: Vec<&str> = offenders.iter().map(|(name, ..)| name.as_str()).collect();
    let amounts: Vec<String> = offenders.iter().map(|(_, used, _)| used.to_string()).collect();
    note("offending_containers", names.join(","));
    note("offending_containers_usage", amounts.join(","));
    note("starved_resource", resource.name().to_owned());
    EvictionMessage { text, annotations }
}

fn exceeding(kind: &str, name: &str, used: Quantity, request: Quantity, resource: Starved) -> String {
    let resource = resource.name();
    format!("{kind} {name} was using {used}, request is {request}, has larger consumption of {resource}. ")
}

/// Text of the first threshold that is about the resource.
fn threshold_text(
    resource: Starved,
    thresholds: &[EvictionThreshold],
    observations: &Observations,
) -> Option<String> {
    let mut about = thresholds
        .iter()
        .filter(|own| own.signal.resource() == resource)
        .filter_map(|own| Some((own, observations.get(&own.signal)?)));
    let (threshold, observed) = about.next()?;
    let available = match resource {
        Starved::Memory | Starved::Storage => Quantity::from_bytes(observed.available),
        Starved::Inodes | Starved::Pids => Quantity::from_units(observed.available),
    };
    let level = threshold.level.quantity(observed.capacity);
    Some(format!("Threshold quantity: {level}, available: {available}. "))
}

/// Usage and request of a pod that requests memory as a whole.
fn pod_level(resource: Starved, pod: &Pod, usage: &PodUsage) -> Option<(Quantity, Quantity)> {
    let whole = spec(pod)
        .resources
        .as_ref()
        .filter(|_| resource == Starved::Memory)?;
    let requests = ResourceList::from_api(whole.requests.as_ref());
    let request = requests.0.get(resource.name())?;
    Some((Quantity::from_bytes(usage.memory_bytes), *request))
}

/// Containers above their request. Ephemeral ones cannot request anything, and are left out.
fn offenders(resource: Starved, pod: &Pod, usage: &PodUsage) -> Vec<(String, Quantity, Quantity)> {
    let spec = spec(pod);
    let known = |name: &str| {
        let mut all = spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten());
        all.find(|container| container.name == name)
    };
    let all = usage.containers.iter().filter_map(|own| {
        let used = used(resource, own)?;
        let request = request(known(&own.name)?, resource);
        (used > request).then(|| (own.name.clone(), used, request))
    });
    all.collect()
}

fn used(resource: Starved, container: &ContainerUsage) -> Option<Quantity> {
    match resource {
        Starved::Memory => container.memory_bytes.map(Quantity::from_bytes),
        Starved::Storage => {
            let both = container.root + container.logs;
            Some(Quantity::from_bytes(
                i64::try_from(both.bytes).unwrap_or(i64::MAX),
            ))
        }
        Starved::Inodes | Starved::Pids => None,
    }
}

fn request(container: &Container, resource: Starved) -> Quantity {
    let resources = container.resources.as_ref();
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    ResourceList::from_api(requests).get(resource.name())
}
