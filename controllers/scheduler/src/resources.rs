//! Requests of a pod and resources of a node, as numbers.

use crate::object::{Container, ContainerStatus, Pod, ResourceList};
use machinery_meta::Quantity;
use machinery_semantics::resources::{
    Amounts, ContainerLists, PodLists, is_resize_infeasible, is_sidecar_policy, statuses_by_name,
};
use std::collections::BTreeMap;

/// Scoring counts a container without a CPU request as requesting this much.
pub const DEFAULT_MILLI_CPU_REQUEST: i64 = 100;
/// Scoring counts a container without a memory request as requesting this much.
pub const DEFAULT_MEMORY_REQUEST: i64 = 200 * 1024 * 1024;

/// The largest amount that a pod requests: 256 TiB of memory, more than any node has. Amounts of 32,000 such pods fit into 64 bits.
const MOST: i64 = 1 << 48;

/// Amounts of resources: CPU in thousandths, the others in whole units. Everything that is not CPU, memory or
/// ephemeral storage (extended resources, huge pages) is a scalar; `pods` is kept by nodes only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Resources {
    pub milli_cpu: i64,
    pub memory: i64,
    pub ephemeral_storage: i64,
    pub scalars: BTreeMap<Box<str>, i64>,
}

impl Resources {
    /// Amounts of a list as the API writes it; what cannot be read counts as zero, as validation keeps it out.
    pub fn of(list: &ResourceList) -> Self {
        let mut all = Self::default();
        for (name, text) in list.iter() {
            all.set(name, text);
        }
        all
    }

    /// Reports whether any amount is larger than the other's.
    pub fn exceed(&self, other: &Self) -> bool {
        self.milli_cpu > other.milli_cpu
            || self.memory > other.memory
            || self.ephemeral_storage > other.ephemeral_storage
            || self.scalars.iter().any(|(name, own)| *own > other.scalar(name))
    }

    /// The amount of a scalar resource.
    pub fn scalar(&self, name: &str) -> i64 {
        self.scalars.get(name).copied().unwrap_or(0)
    }

    fn set(&mut self, name: &str, text: &str) {
        match name {
            "cpu" => self.milli_cpu = milli_value(text),
            "memory" => self.memory = value(text),
            "ephemeral-storage" => self.ephemeral_storage = value(text),
            "pods" => {}
            _ => {
                self.scalars.insert(name.into(), value(text));
            }
        }
    }

    /// No amount is more than [`MOST`], so that those of a node's pods can be added up and taken away again.
    fn bounded(mut self) -> Self {
        let amounts = [&mut self.milli_cpu, &mut self.memory, &mut self.ephemeral_storage];
        for amount in amounts.into_iter().chain(self.scalars.values_mut()) {
            *amount = (*amount).min(MOST);
        }
        self
    }
}

impl Amounts for Resources {
    type List = ResourceList;

    fn read(list: &ResourceList) -> Self {
        Self::of(list)
    }

    fn add(&mut self, other: &Self) {
        self.milli_cpu = self.milli_cpu.saturating_add(other.milli_cpu);
        self.memory = self.memory.saturating_add(other.memory);
        self.ephemeral_storage = self.ephemeral_storage.saturating_add(other.ephemeral_storage);
        for (name, amount) in &other.scalars {
            let own = self.scalars.entry(name.clone()).or_default();
            *own = own.saturating_add(*amount);
        }
    }

    fn raise_to(&mut self, other: &Self) {
        self.milli_cpu = self.milli_cpu.max(other.milli_cpu);
        self.memory = self.memory.max(other.memory);
        self.ephemeral_storage = self.ephemeral_storage.max(other.ephemeral_storage);
        for (name, amount) in &other.scalars {
            let own = self.scalars.entry(name.clone()).or_default();
            *own = (*own).max(*amount);
        }
    }

    fn replace(&mut self, list: &ResourceList, is_named: fn(&str) -> bool) {
        for (name, text) in list.iter().filter(|(name, _)| is_named(name)) {
            self.set(name, text);
        }
    }
}

/// The amount in whole units, rounded up.
pub fn value(text: &str) -> i64 {
    text.parse::<Quantity>().map_or(0, |quantity| quantity.units())
}

/// The amount in thousandths, rounded up.
pub fn milli_value(text: &str) -> i64 {
    text.parse::<Quantity>().map_or(0, |quantity| quantity.millis())
}

/// Requests of a pod, by the rule that all components share ([`PodLists::requests`]), with what its node reports of them.
#[derive(Debug)]
pub struct PodRequests<'p>(PodLists<'p, ResourceList>);

impl<'p> PodRequests<'p> {
    /// Collects the lists of a pod.
    pub fn of(pod: &'p Pod) -> Self {
        let (spec, status) = (&pod.spec, &pod.status);
        let of_containers = status.container_statuses.iter();
        let all = of_containers.chain(&status.init_container_statuses);
        let known =
            all.filter(|own| !own.allocated_resources.is_empty() || !own.resources.requests.is_empty());
        let statuses = statuses_by_name(known.map(|own| (&*own.name, own)));
        let lists = |container: &'p Container| {
            let status: Option<&'p ContainerStatus> = statuses.get(&*container.name).copied();
            ContainerLists {
                is_sidecar: is_sidecar(container),
                spec: Some(&container.resources.requests),
                allocated: status.and_then(|own| named(&own.allocated_resources)),
                actuated: status.and_then(|own| named(&own.resources.requests)),
            }
        };
        let conditions = status.conditions.iter();
        Self(PodLists {
            containers: spec.containers.iter().map(lists).collect(),
            init_containers: spec.init_containers.iter().map(lists).collect(),
            pod_level: named(&spec.resources.requests),
            overhead: named(&spec.overhead),
            is_infeasible: is_resize_infeasible(conditions.map(|own| (&*own.type_, &*own.reason))),
        })
    }

    /// Resources that the pod as a whole takes of its node.
    pub fn taken(&self) -> Resources {
        self.0
            .requests(|list| list.map(Resources::of).unwrap_or_default())
            .bounded()
    }

    /// The same with the defaults of scoring for containers that request nothing.
    pub fn scored(&self) -> Resources {
        let or_default = |list: Option<&ResourceList>| {
            let names = |name: &str| list.is_some_and(|list| list.get(name).is_some());
            let mut all = list.map(Resources::of).unwrap_or_default();
            if !names("cpu") {
                all.milli_cpu = DEFAULT_MILLI_CPU_REQUEST;
            }
            if !names("memory") {
                all.memory = DEFAULT_MEMORY_REQUEST;
            }
            all
        };
        self.0.requests(or_default).bounded()
    }
}

/// A list that names something.
fn named(list: &ResourceList) -> Option<&ResourceList> {
    Some(list).filter(|list| !list.is_empty())
}

/// Reports whether the container is an init container that keeps running.
pub fn is_sidecar(container: &Container) -> bool {
    is_sidecar_policy(&container.restart_policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(text: &str) -> Pod {
        serde_json::from_str(text).unwrap()
    }

    fn taken(pod: &Pod) -> Resources {
        PodRequests::of(pod).taken()
    }

    fn scored(pod: &Pod) -> Resources {
        PodRequests::of(pod).scored()
    }

    #[test]
    fn init_containers_count_the_largest_and_sidecars_add_up() {
        let pod = pod(r#"{"spec":{
            "containers":[{"resources":{"requests":{"cpu":"100m","memory":"1Mi"}}}],
            "initContainers":[
                {"restartPolicy":"Always","resources":{"requests":{"cpu":"50m"}}},
                {"resources":{"requests":{"cpu":"1","example.com/gpu":"2"}}}],
            "overhead":{"memory":"1Mi"}}}"#);
        let requests = taken(&pod);
        assert_eq!(requests.milli_cpu, 1050);
        assert_eq!(requests.memory, 2 * 1024 * 1024);
        assert_eq!(requests.scalars.get("example.com/gpu"), Some(&2));
    }

    #[test]
    fn scoring_assumes_a_little_of_everyone() {
        let pod = pod(r#"{"spec":{"containers":[{},{"resources":{"requests":{"cpu":"1"}}}]}}"#);
        let requests = scored(&pod);
        assert_eq!(
            (requests.milli_cpu, requests.memory),
            (1100, 2 * DEFAULT_MEMORY_REQUEST)
        );
        assert_eq!(taken(&pod).milli_cpu, 1000);
    }

    /// CPU in thousandths of a container that requests two, by what its node reports of it.
    #[track_caller]
    fn check_reported(status: &str, expected: i64) {
        let container = r#"{"name":"c","resources":{"requests":{"cpu":"2"}}}"#;
        let pod = pod(&format!(
            r#"{{"spec":{{"containers":[{container}]}},"status":{{{status}}}}}"#
        ));
        assert_eq!(taken(&pod).milli_cpu, expected, "{status}");
        assert_eq!(scored(&pod).milli_cpu, expected, "{status}");
    }

    #[test]
    fn requests_are_the_most_of_spec_and_status() {
        let of = |allocated: &str, actual: &str| {
            format!(
                r#""containerStatuses":[{{"name":"c","allocatedResources":{{"cpu":"{allocated}"}},"resources":{{"requests":{{"cpu":"{actual}"}}}}}}]"#
            )
        };
        check_reported("", 2000);
        check_reported(&of("1", "1"), 2000);
        check_reported(&of("3", "1"), 3000);
        check_reported(&of("1", "4"), 4000);
        check_reported(r#""containerStatuses":[{"name":"c","resources":{}}]"#, 2000);
        check_reported(
            r#""initContainerStatuses":[{"name":"c","allocatedResources":{"cpu":"5"}}]"#,
            5000,
        );
        let infeasible = r#","conditions":[{"type":"PodResizePending","reason":"Infeasible"}]"#;
        check_reported(&format!("{}{infeasible}", of("1", "1")), 1000);
        let deferred = r#","conditions":[{"type":"PodResizePending","reason":"Deferred"}]"#;
        check_reported(&format!("{}{deferred}", of("1", "1")), 2000);
    }

    #[test]
    fn amounts_beyond_64_bits_are_more_than_any_node_has() {
        let container = r#"{"resources":{"requests":{"cpu":"4611686018427387904m","memory":"9223372036854775807","a/b":"9223372036854775807"}}}"#;
        let pod = pod(&format!(
            r#"{{"spec":{{"containers":[{container},{container}],"initContainers":[{container}]}}}}"#
        ));
        let mut requests = taken(&pod);
        assert_eq!((requests.milli_cpu, requests.memory), (MOST, MOST));
        assert_eq!(requests.scalars["a/b"], MOST);
        assert_eq!(scored(&pod).milli_cpu, MOST);
        let one = requests.clone();
        for _ in 0..30_000 {
            requests.add(&one);
        }
        assert_eq!(requests.memory, MOST * 30_001);
    }

    #[test]
    fn pod_level_requests_replace_the_sum() {
        let pod = pod(r#"{"spec":{"resources":{"requests":{"cpu":"3"}},
            "containers":[{"resources":{"requests":{"cpu":"1","memory":"5"}}}]}}"#);
        let requests = taken(&pod);
        assert_eq!((requests.milli_cpu, requests.memory), (3000, 5));
    }
}
