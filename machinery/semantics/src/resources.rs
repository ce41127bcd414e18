//! Effective requests and limits of a pod (upstream's `component-helpers/resource`).

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use machinery_meta::quantity::Quantity;
use std::collections::BTreeMap;

/// Amounts by resource name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourceList(pub BTreeMap<String, Quantity>);

impl ResourceList {
    /// Reads the amounts of an object; text that is no quantity counts as zero, validation refused it before.
    pub fn from_api(amounts: Option<&BTreeMap<String, ApiQuantity>>) -> Self {
        let amounts = amounts.into_iter().flatten();
        Self(
            amounts
                .map(|(name, amount)| (name.clone(), amount.0.parse().unwrap_or_default()))
                .collect(),
        )
    }

    /// The amount of a resource, zero where none is named.
    pub fn get(&self, name: &str) -> Quantity {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Adds the other's amounts.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let sum = self.get(name) + *amount;
            self.0.insert(name.clone(), sum);
        }
    }

    /// Keeps the larger of both amounts.
    pub fn max(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            if !self.0.contains_key(name) || self.get(name) < *amount {
                self.0.insert(name.clone(), *amount);
            }
        }
    }

    /// The amounts, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }
}

/// Side of `resources`: requests or limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Requests,
    Limits,
}

impl Side {
    fn of(self, resources: Option<&ResourceRequirements>) -> ResourceList {
        let Some(resources) = resources else {
            return ResourceList::default();
        };
        ResourceList::from_api(match self {
            Self::Requests => resources.requests.as_ref(),
            Self::Limits => resources.limits.as_ref(),
        })
    }
}

/// Requests that the scheduler and the node reserve: containers and sidecars together, or the largest moment of initialisation,
/// whichever is more; pod-level amounts take the place of cpu, memory and huge pages; then the runtime's overhead.
pub fn pod_requests(spec: &PodSpec) -> ResourceList {
    let mut total = containers_total(spec, Side::Requests);
    override_by_pod_level(&mut total, spec, Side::Requests);
    total.add(&ResourceList::from_api(spec.overhead.as_ref()));
    total
}

/// The same of limits. Overhead is added only to limits that are set.
pub fn pod_limits(spec: &PodSpec) -> ResourceList {
    let mut total = containers_total(spec, Side::Limits);
    override_by_pod_level(&mut total, spec, Side::Limits);
    for (name, amount) in ResourceList::from_api(spec.overhead.as_ref()).iter() {
        if let Some(limit) = total.0.get_mut(name) {
            *limit = *limit + amount;
        }
    }
    total
}

/// Reports whether an init container is a sidecar, which runs beside the containers.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Resources that may be requested at the level of the pod.
pub fn is_pod_level_resource(name: &str) -> bool {
    name == "cpu" || name == "memory" || name.starts_with("hugepages-")
}

/// Sum of the containers' requests, without pod-level requests.
pub fn containers_requests(spec: &PodSpec) -> ResourceList {
    containers_total(spec, Side::Requests)
}

/// The same of limits.
pub fn containers_limits(spec: &PodSpec) -> ResourceList {
    containers_total(spec, Side::Limits)
}

fn containers_total(spec: &PodSpec, side: Side) -> ResourceList {
    aggregate(spec, |container| side.of(container.resources.as_ref()))
}

/// The containers' and sidecars' amounts together, or the largest moment of initialisation, whichever is more.
pub(crate) fn aggregate(spec: &PodSpec, amounts: impl Fn(&Container) -> ResourceList) -> ResourceList {
    let mut total = ResourceList::default();
    for container in &spec.containers {
        total.add(&amounts(container));
    }
    let mut sidecars = ResourceList::default();
    let mut initialising = ResourceList::default();
    for container in spec.init_containers.iter().flatten() {
        let own = amounts(container);
        let mut moment = sidecars.clone();
        moment.add(&own);
        if is_sidecar(container) {
            total.add(&own);
            sidecars = moment.clone();
        }
        initialising.max(&moment);
    }
    total.max(&initialising);
    total
}

fn override_by_pod_level(total: &mut ResourceList, spec: &PodSpec, side: Side) {
    for (name, amount) in side.of(spec.resources.as_ref()).iter() {
        if is_pod_level_resource(name) {
            total.0.insert(name.to_owned(), amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(spec: serde_json::Value, cpu: &str, memory: &str) {
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let requests = pod_requests(&spec);
        assert_eq!(requests.get("cpu").to_string(), cpu, "cpu");
        assert_eq!(requests.get("memory").to_string(), memory, "memory");
    }

    fn container(cpu: &str, memory: &str) -> serde_json::Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    fn sidecar(cpu: &str, memory: &str) -> serde_json::Value {
        let mut own = container(cpu, memory);
        own["restartPolicy"] = json!("Always");
        own
    }

    #[test]
    fn requests_are_effective() {
        check(
            json!({"containers": [container("100m", "1Gi"), container("200m", "1Gi")]}),
            "300m",
            "2Gi",
        );
        // The largest init container wins over the sum where it is larger, per resource.
        let init = [container("1", "1Gi"), container("100m", "4Gi")];
        check(
            json!({"containers": [container("500m", "1Gi")], "initContainers": init}),
            "1",
            "4Gi",
        );
        // A sidecar counts beside the containers, and beside init containers after it.
        let init = [
            container("1", "1Gi"),
            sidecar("500m", "1Gi"),
            container("1", "1Gi"),
        ];
        check(
            json!({"containers": [container("500m", "1Gi")], "initContainers": init}),
            "1500m",
            "2Gi",
        );
        let spec = json!({"containers": [container("100m", "1Gi")], "overhead": {"cpu": "50m"},
            "resources": {"requests": {"cpu": "2"}}});
        check(spec, "2050m", "1Gi");
    }
}
