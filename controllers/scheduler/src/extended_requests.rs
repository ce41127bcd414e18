//! Extended resources that a pod's containers request, one by one: devices may be claimed for them.

use crate::object::{Container, Pod, ResourceList};
use crate::resources::{is_sidecar, value};

/// Beginning of the names of resources that classes of devices serve without saying so.
pub(crate) const CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// Requests of a container that has extended resources among them, packed as it has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerRequests {
    /// The container's name.
    container: Box<str>,
    /// Its place among the init containers and then the others.
    at: usize,
    /// It has ended before the next one starts.
    is_short: bool,
    /// Name and amount of each, in lines sorted by name: a list of its own would take several times as much.
    requests: Box<str>,
}

/// An extended resource that a container requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExtendedRequest<'a> {
    pub(crate) container: &'a str,
    pub(crate) at: usize,
    pub(crate) is_short: bool,
    pub(crate) resource: &'a str,
    /// The place of the resource among the names of all that the container requests, sorted.
    pub(crate) place: usize,
    pub(crate) count: i64,
}

impl ContainerRequests {
    /// Names of its extended resources.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &str> {
        let names = self.requests().map(|(name, _)| name);
        names.filter(|name| is_extended(name))
    }

    /// Its extended resources, sorted by name.
    pub(crate) fn all(&self) -> Vec<ExtendedRequest<'_>> {
        let own = self.requests().enumerate();
        let own = own.filter(|(_, (name, _))| is_extended(name));
        let own = own.map(|(place, (resource, amount))| ExtendedRequest {
            container: &self.container,
            at: self.at,
            is_short: self.is_short,
            resource,
            place,
            count: value(amount),
        });
        own.filter(|own| own.count > 0).collect()
    }

    fn requests(&self) -> impl Iterator<Item = (&str, &str)> {
        self.requests.lines().filter_map(|line| line.split_once('\t'))
    }
}

/// Reports whether devices may serve the resource (upstream's `IsDRAExtendedResourceName`).
pub(crate) fn is_extended(name: &str) -> bool {
    name.starts_with(CLASS_PREFIX)
        || (name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests."))
}

/// Containers with extended resources, in their order.
pub(crate) fn extended_requests(pod: &Pod) -> Box<[ContainerRequests]> {
    let (init, ordinary) = (&pod.spec.init_containers, &pod.spec.containers);
    let all = init.iter().map(|own| (own, !is_sidecar(own)));
    let all = all.chain(ordinary.iter().map(|own| (own, false))).enumerate();
    let has_some = |own: &Container| own.resources.requests.iter().any(|(name, _)| is_extended(name));
    let all = all.filter(|(_, (container, _))| has_some(container));
    let own = all.map(|(at, (container, is_short))| ContainerRequests {
        container: container.name.clone(),
        at,
        is_short,
        requests: packed(&container.resources.requests),
    });
    own.collect()
}

fn packed(requests: &ResourceList) -> Box<str> {
    let mut all: Vec<(&str, &str)> = requests.iter().collect();
    all.sort_unstable();
    let lines: Vec<String> = all
        .iter()
        .map(|(name, amount)| format!("{name}\t{amount}"))
        .collect();
    lines.join("\n").into()
}
