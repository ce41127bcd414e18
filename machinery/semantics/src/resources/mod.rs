//! Effective requests and limits of a pod (upstream's `component-helpers/resource`).

mod effective;

pub use effective::{Amounts, ContainerLists, PodLists, is_resize_infeasible, statuses_by_name};

use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodSpec, PodStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use machinery_meta::quantity::Quantity;
use std::collections::{BTreeMap, HashMap};

/// Amounts as the API lists them.
type ApiList = BTreeMap<String, ApiQuantity>;

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

impl Amounts for ResourceList {
    type List = ApiList;

    fn read(list: &ApiList) -> Self {
        Self::from_api(Some(list))
    }

    fn add(&mut self, other: &Self) {
        Self::add(self, other);
    }

    fn raise_to(&mut self, other: &Self) {
        self.max(other);
    }

    fn replace(&mut self, list: &ApiList, is_named: fn(&str) -> bool) {
        let own = Self::read(list).0.into_iter();
        self.0.extend(own.filter(|(name, _)| is_named(name)));
    }
}

/// Requests that the scheduler and the node reserve: containers and sidecars together, or the largest moment of initialisation,
/// whichever is more; pod-level amounts take the place of cpu, memory and huge pages; then the runtime's overhead.
pub fn pod_requests(spec: &PodSpec) -> ResourceList {
    lists(Side::Requests, spec, None).requests(ResourceList::from_api)
}

/// The same of limits. Overhead is added only to limits that are set.
pub fn pod_limits(spec: &PodSpec) -> ResourceList {
    lists(Side::Limits, spec, None).limits()
}

/// [`pod_requests`], or what the node has granted or has in effect where that is more.
pub fn pod_requests_with_status(spec: &PodSpec, status: Option<&PodStatus>) -> ResourceList {
    lists(Side::Requests, spec, status).requests(ResourceList::from_api)
}

/// [`pod_limits`], or what the node has in effect where that is more.
pub fn pod_limits_with_status(spec: &PodSpec, status: Option<&PodStatus>) -> ResourceList {
    lists(Side::Limits, spec, status).limits()
}

/// Sum of the containers' requests, without pod-level requests.
pub fn containers_requests(spec: &PodSpec) -> ResourceList {
    lists(Side::Requests, spec, None).of_containers(ResourceList::from_api)
}

/// The same of limits.
pub fn containers_limits(spec: &PodSpec) -> ResourceList {
    lists(Side::Limits, spec, None).of_containers(ResourceList::from_api)
}

/// Reports whether an init container is a sidecar, which runs beside the containers.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref().is_some_and(is_sidecar_policy)
}

/// Reports whether a restart policy makes a sidecar of an init container.
pub fn is_sidecar_policy(restart_policy: &str) -> bool {
    restart_policy == "Always"
}

/// Resources that may be requested at the level of the pod.
pub fn is_pod_level_resource(name: &str) -> bool {
    name == "cpu" || name == "memory" || name.starts_with("hugepages-")
}

/// Side of `resources`: requests or limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Requests,
    Limits,
}

impl Side {
    fn of(self, resources: Option<&ResourceRequirements>) -> Option<&ApiList> {
        match self {
            Self::Requests => resources?.requests.as_ref(),
            Self::Limits => resources?.limits.as_ref(),
        }
    }

    /// Only requests are granted.
    fn allocated(self, status: &ContainerStatus) -> Option<&ApiList> {
        match self {
            Self::Requests => status.allocated_resources.as_ref(),
            Self::Limits => None,
        }
    }
}

fn lists<'p>(side: Side, spec: &'p PodSpec, status: Option<&'p PodStatus>) -> PodLists<'p, ApiList> {
    let statuses = statuses(status);
    let of = |container: &'p Container| {
        let status = statuses.get(container.name.as_str()).copied();
        ContainerLists {
            is_sidecar: is_sidecar(container),
            spec: side.of(container.resources.as_ref()),
            allocated: status.and_then(|own| side.allocated(own)),
            actuated: status.and_then(|own| side.of(own.resources.as_ref())),
        }
    };
    let conditions = status.into_iter().flat_map(|own| own.conditions.iter().flatten());
    let conditions = conditions.map(|own| (own.type_.as_str(), own.reason.as_deref().unwrap_or_default()));
    PodLists {
        containers: spec.containers.iter().map(of).collect(),
        init_containers: spec.init_containers.iter().flatten().map(of).collect(),
        pod_level: side.of(spec.resources.as_ref()),
        overhead: spec.overhead.as_ref(),
        is_infeasible: is_resize_infeasible(conditions),
    }
}

fn statuses(status: Option<&PodStatus>) -> HashMap<&str, &ContainerStatus> {
    let of_containers = status.and_then(|own| own.container_statuses.as_ref());
    let of_init_containers = status.and_then(|own| own.init_container_statuses.as_ref());
    let all = [of_containers, of_init_containers]
        .into_iter()
        .flatten()
        .flatten();
    statuses_by_name(all.map(|own| (own.name.as_str(), own)))
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

    #[test]
    fn overhead_is_added_only_to_limits_that_are_set() {
        let container = json!({"name": "c", "resources": {"limits": {"cpu": "1", "memory": "0"}}});
        let overhead = json!({"cpu": "50m", "memory": "16Mi", "ephemeral-storage": "1Gi"});
        let spec = json!({"containers": [container], "overhead": overhead});
        let limits = pod_limits(&serde_json::from_value(spec).unwrap());
        let limits: Vec<String> = limits
            .iter()
            .map(|(name, amount)| format!("{name}={amount}"))
            .collect();
        assert_eq!(limits, ["cpu=1050m", "memory=0"]);
    }

    /// Requests and limits of CPU of a container that requests two and may use four, by what its node reports of it.
    #[track_caller]
    fn check_reported(status: serde_json::Value, requests: &str, limits: &str) {
        let resources = json!({"requests": {"cpu": "2"}, "limits": {"cpu": "4"}});
        let spec = json!({"containers": [{"name": "c", "resources": resources}]});
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let status: PodStatus = serde_json::from_value(status).unwrap();
        let found = [
            pod_requests_with_status(&spec, Some(&status)),
            pod_limits_with_status(&spec, Some(&status)),
        ];
        let found = found.map(|own| own.get("cpu").to_string());
        assert_eq!(found, [requests, limits], "{status:?}");
    }

    #[test]
    fn requests_and_limits_are_the_most_of_spec_and_status() {
        let status = |allocated: &str, requests: &str, limits: &str, reason: &str| {
            let resources = json!({"requests": {"cpu": requests}, "limits": {"cpu": limits}});
            let own = json!({"name": "c", "ready": true, "image": "", "imageID": "", "restartCount": 0,
                "allocatedResources": {"cpu": allocated}, "resources": resources});
            json!({"containerStatuses": [own],
                "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}]})
        };
        check_reported(json!({}), "2", "4");
        check_reported(status("1", "1", "1", "Deferred"), "2", "4");
        check_reported(status("3", "1", "5", "Deferred"), "3", "5");
        check_reported(status("1", "4", "1", "Deferred"), "4", "4");
        check_reported(status("1", "1", "3", "Infeasible"), "1", "3");
    }
}
