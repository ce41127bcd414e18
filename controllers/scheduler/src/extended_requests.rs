//! Extended resources that a pod's containers request, one by one: devices may be claimed for them.

use crate::object::{Container, Pod};
use crate::resources::{is_sidecar, value};

/// Beginning of the names of resources that classes of devices serve without saying so.
pub(crate) const CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// An extended resource that a container requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtendedRequest {
    /// The container's name.
    pub container: Box<str>,
    /// Its place among the init containers and then the others.
    pub at: usize,
    /// It has ended before the next one starts.
    pub is_short: bool,
    pub resource: Box<str>,
    /// The place of the resource among the names of all that the container requests, sorted.
    pub place: usize,
    pub count: i64,
}

/// Reports whether devices may serve the resource (upstream's `IsDRAExtendedResourceName`).
pub(crate) fn is_extended(name: &str) -> bool {
    name.starts_with(CLASS_PREFIX)
        || (name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests."))
}

/// Requests of all containers, in their order.
pub(crate) fn extended_requests(pod: &Pod) -> Box<[ExtendedRequest]> {
    let (init, ordinary) = (&pod.spec.init_containers, &pod.spec.containers);
    let all = init.iter().map(|own| (own, !is_sidecar(own)));
    let all = all.chain(ordinary.iter().map(|own| (own, false)));
    let requests = all.enumerate();
    requests
        .flat_map(|(at, (container, is_short))| of_container(container, at, is_short))
        .collect()
}

fn of_container(container: &Container, at: usize, is_short: bool) -> Vec<ExtendedRequest> {
    let requests = &container.resources.requests;
    if !requests.iter().any(|(name, _)| is_extended(name)) {
        return Vec::new();
    }
    let mut all: Vec<(&str, &str)> = requests.iter().collect();
    all.sort_unstable();
    let own = all.into_iter().enumerate();
    let own = own.filter(|(_, (name, _))| is_extended(name));
    let own = own.map(|(place, (name, amount))| ExtendedRequest {
        container: container.name.clone(),
        at,
        is_short,
        resource: name.into(),
        place,
        count: value(amount),
    });
    own.filter(|own| own.count > 0).collect()
}
