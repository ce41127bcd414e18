//! Requests of a pod and resources of a node, as numbers.

use crate::object::{Container, ContainerStatus, Pod, ResourceList};
use machinery_meta::Quantity;
use std::collections::{BTreeMap, HashMap};

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
            match name {
                "cpu" => all.milli_cpu = milli_value(text),
                "memory" => all.memory = value(text),
                "ephemeral-storage" => all.ephemeral_storage = value(text),
                "pods" => {}
                _ => {
                    all.scalars.insert(name.into(), value(text));
                }
            }
        }
        all
    }

    pub fn add(&mut self, other: &Self) {
        self.milli_cpu = self.milli_cpu.saturating_add(other.milli_cpu);
        self.memory = self.memory.saturating_add(other.memory);
        self.ephemeral_storage = self.ephemeral_storage.saturating_add(other.ephemeral_storage);
        for (name, amount) in &other.scalars {
            let own = self.scalars.entry(name.clone()).or_default();
            *own = own.saturating_add(*amount);
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

    /// The larger of both, resource by resource.
    pub fn raise_to(&mut self, other: &Self) {
        self.milli_cpu = self.milli_cpu.max(other.milli_cpu);
        self.memory = self.memory.max(other.memory);
        self.ephemeral_storage = self.ephemeral_storage.max(other.ephemeral_storage);
        for (name, amount) in &other.scalars {
            let own = self.scalars.entry(name.clone()).or_default();
            *own = (*own).max(*amount);
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

/// Resources that the pod as a whole takes of its node: the most of its requests, what the node has granted and what is
/// in effect, while these differ by a resize (upstream's `UseStatusResources`).
///
/// Ordinary containers and restartable init containers (sidecars) run together and add up; each ordinary init
/// container runs alone beside the sidecars started before it, so the largest of them counts. Pod-level
/// requests replace the sum for the resources they may name; overhead comes on top.
pub fn pod_requests(pod: &Pod) -> Resources {
    total(pod, Resources::of)
}

/// [`pod_requests`] with the defaults of scoring for containers that request nothing.
pub fn pod_requests_non_zero(pod: &Pod) -> Resources {
    total(pod, |requests| {
        let mut all = Resources::of(requests);
        if requests.get("cpu").is_none() {
            all.milli_cpu = DEFAULT_MILLI_CPU_REQUEST;
        }
        if requests.get("memory").is_none() {
            all.memory = DEFAULT_MEMORY_REQUEST;
        }
        all
    })
}

fn total(pod: &Pod, amounts: impl Fn(&ResourceList) -> Resources) -> Resources {
    let reported = Reported::of(pod);
    let mut total = Resources::default();
    if !reported.is_infeasible {
        total = aggregate(pod, |container| amounts(&container.resources.requests));
    }
    if reported.is_infeasible || !reported.statuses.is_empty() {
        total.raise_to(&aggregate(pod, |container| {
            amounts(reported.allocated(container))
        }));
        total.raise_to(&aggregate(pod, |container| amounts(reported.actuated(container))));
    }
    apply_pod_level(&mut total, &pod.spec.resources.requests);
    if !pod.spec.overhead.is_empty() {
        total.add(&Resources::of(&pod.spec.overhead));
    }
    total.bounded()
}

/// The node's word on the containers of a pod.
struct Reported<'p> {
    /// Those that say something of resources, by name.
    statuses: HashMap<&'p str, &'p ContainerStatus>,
    /// The node will never grant what the spec requests now, so that this does not count.
    is_infeasible: bool,
    nothing: ResourceList,
}

impl<'p> Reported<'p> {
    fn of(pod: &'p Pod) -> Self {
        let status = &pod.status;
        let all = status
            .container_statuses
            .iter()
            .chain(&status.init_container_statuses);
        let mut statuses = HashMap::new();
        for own in all {
            if !own.allocated_resources.is_empty() || !own.resources.requests.is_empty() {
                statuses.entry(&*own.name).or_insert(own);
            }
        }
        let mut conditions = status.conditions.iter();
        let pending = conditions.find(|own| &*own.type_ == "PodResizePending");
        Self {
            statuses,
            is_infeasible: pending.is_some_and(|own| &*own.reason == "Infeasible"),
            nothing: ResourceList::default(),
        }
    }

    fn allocated<'a>(&'a self, container: &'a Container) -> &'a ResourceList {
        let status = self.statuses.get(&*container.name);
        let allocated = status.map(|own| &own.allocated_resources);
        let known = allocated.filter(|own| !own.is_empty());
        known.unwrap_or_else(|| self.asked(container))
    }

    fn actuated<'a>(&'a self, container: &'a Container) -> &'a ResourceList {
        let status = self.statuses.get(&*container.name);
        let actuated = status.map(|own| &own.resources.requests);
        let known = actuated.filter(|own| !own.is_empty());
        known.unwrap_or_else(|| self.allocated(container))
    }

    fn asked<'a>(&'a self, container: &'a Container) -> &'a ResourceList {
        match self.is_infeasible {
            true => &self.nothing,
            false => &container.resources.requests,
        }
    }
}

fn aggregate(pod: &Pod, requests: impl Fn(&Container) -> Resources) -> Resources {
    let mut total = Resources::default();
    for container in &pod.spec.containers {
        total.add(&requests(container));
    }
    let mut sidecars = Resources::default();
    let mut largest_init = Resources::default();
    for container in &pod.spec.init_containers {
        let mut own = requests(container);
        if is_sidecar(container) {
            total.add(&own);
            sidecars.add(&own);
            own = sidecars.clone();
        } else {
            own.add(&sidecars);
        }
        largest_init.raise_to(&own);
    }
    total.raise_to(&largest_init);
    total
}

/// Reports whether the container is an init container that keeps running.
pub fn is_sidecar(container: &Container) -> bool {
    &*container.restart_policy == "Always"
}

/// Pod-level requests may name CPU, memory and huge pages.
fn apply_pod_level(total: &mut Resources, requests: &ResourceList) {
    for (name, text) in requests.iter() {
        match name {
            "cpu" => total.milli_cpu = milli_value(text),
            "memory" => total.memory = value(text),
            huge if huge.starts_with("hugepages-") => {
                total.scalars.insert(name.into(), value(text));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(text: &str) -> Pod {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn init_containers_count_the_largest_and_sidecars_add_up() {
        let pod = pod(r#"{"spec":{
            "containers":[{"resources":{"requests":{"cpu":"100m","memory":"1Mi"}}}],
            "initContainers":[
                {"restartPolicy":"Always","resources":{"requests":{"cpu":"50m"}}},
                {"resources":{"requests":{"cpu":"1","example.com/gpu":"2"}}}],
            "overhead":{"memory":"1Mi"}}}"#);
        let requests = pod_requests(&pod);
        assert_eq!(requests.milli_cpu, 1050);
        assert_eq!(requests.memory, 2 * 1024 * 1024);
        assert_eq!(requests.scalars.get("example.com/gpu"), Some(&2));
    }

    #[test]
    fn scoring_assumes_a_little_of_everyone() {
        let pod = pod(r#"{"spec":{"containers":[{},{"resources":{"requests":{"cpu":"1"}}}]}}"#);
        let requests = pod_requests_non_zero(&pod);
        assert_eq!(
            (requests.milli_cpu, requests.memory),
            (1100, 2 * DEFAULT_MEMORY_REQUEST)
        );
        assert_eq!(pod_requests(&pod).milli_cpu, 1000);
    }

    /// CPU in thousandths of a container that requests two, by what its node reports of it.
    #[track_caller]
    fn check_reported(status: &str, expected: i64) {
        let container = r#"{"name":"c","resources":{"requests":{"cpu":"2"}}}"#;
        let pod = pod(&format!(
            r#"{{"spec":{{"containers":[{container}]}},"status":{{{status}}}}}"#
        ));
        assert_eq!(pod_requests(&pod).milli_cpu, expected, "{status}");
        assert_eq!(pod_requests_non_zero(&pod).milli_cpu, expected, "{status}");
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
        let mut requests = pod_requests(&pod);
        assert_eq!((requests.milli_cpu, requests.memory), (MOST, MOST));
        assert_eq!(requests.scalars["a/b"], MOST);
        assert_eq!(pod_requests_non_zero(&pod).milli_cpu, MOST);
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
        let requests = pod_requests(&pod);
        assert_eq!((requests.milli_cpu, requests.memory), (3000, 5));
    }
}
