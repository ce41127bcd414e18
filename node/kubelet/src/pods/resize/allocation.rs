//! Allocations of the node by pod: resources, ports, and one of its pod slots.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use machinery_semantics::ResourceList;
use machinery_semantics::host_ports::{HostPort, host_ports};
use machinery_semantics::resources::pod_requests;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::containers::resources::{Qos, qos};
use crate::pods::preemption::{Requirements, choose};
use crate::pods::{is_critical, spec};

/// Resources, ports and class of one pod: amounts in the resource's own unit, processors in thousandths.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ResourceRequest {
    amounts: BTreeMap<String, i64>,
    ports: Vec<HostPort>,
    class: Qos,
    priority: Option<i32>,
    critical: bool,
}

impl ResourceRequest {
    /// Returns the requests of a pod.
    pub(crate) fn of(pod: &Pod) -> Self {
        Self {
            amounts: amounts(&pod_requests(spec(pod))),
            ports: host_ports(spec(pod)),
            class: qos(pod),
            priority: spec(pod).priority,
            critical: is_critical(pod),
        }
    }

    fn get(&self, name: &str) -> i64 {
        self.amounts.get(name).copied().unwrap_or(0)
    }

    /// Amount of a resource; one of `pods`.
    pub(crate) fn amount(&self, name: &str) -> i64 {
        match name {
            "pods" => 1,
            name => self.get(name),
        }
    }

    /// Quality-of-service class of the pod.
    pub(crate) fn class(&self) -> Qos {
        self.class
    }

    /// Reports whether the kubelet ends other pods so that this one can run.
    pub(crate) fn is_critical(&self) -> bool {
        self.critical
    }

    /// Reports whether this pod may preempt another: upstream's `Preemptable`.
    pub(crate) fn may_preempt(&self, other: &Self) -> bool {
        let higher = || matches!((self.priority, other.priority), (Some(own), Some(their)) if own > their);
        (self.is_critical() && !other.is_critical()) || higher()
    }
}

fn amounts(list: &ResourceList) -> BTreeMap<String, i64> {
    let in_units = |(name, amount): (&str, machinery_meta::Quantity)| {
        let amount = if name == "cpu" {
            amount.millis()
        } else {
            amount.units()
        };
        (name.to_owned(), amount)
    };
    list.iter().map(in_units).collect()
}

/// Allocatable resources of a node, of its status.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Allocatable(BTreeMap<String, i64>);

impl Allocatable {
    /// Reads the status of a node.
    pub(crate) fn of(node: &Node) -> Self {
        let status = node.status.as_ref();
        let list = status.and_then(|status| status.allocatable.as_ref());
        Self(amounts(&ResourceList::from_api(list)))
    }

    /// Raises amounts to what the node has given already.
    pub(crate) fn has_at_least(&mut self, given: BTreeMap<String, usize>) {
        for (name, count) in given {
            let amount = self.0.entry(name).or_default();
            *amount = (*amount).max(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }
}

/// Reason why a pod is not admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// A resource, and upstream's sentence.
    Resource(String, String),
    /// A host port that another pod holds.
    Ports,
}

/// Allocations of the node's pods, by uid.
#[derive(Debug, Default)]
pub(crate) struct NodeAllocations {
    inner: Mutex<Allocations>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Allocations {
    requests: BTreeMap<String, ResourceRequest>,
    /// Wakers of pods that wait for resources.
    waiting: BTreeMap<String, Arc<Notify>>,
    /// Pods preempted for critical ones so far, by the missing resource.
    preempted: BTreeMap<String, u64>,
}

impl Allocations {
    fn wake_all(&mut self) {
        std::mem::take(&mut self.waiting)
            .into_values()
            .for_each(|wake| wake.notify_one());
    }

    fn others<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = &'a ResourceRequest> {
        self.others_by_uid(uid).map(|(_, request)| request)
    }

    fn others_by_uid<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = (&'a str, &'a ResourceRequest)> {
        let others = self.requests.iter().filter(move |(other, _)| *other != uid);
        others.map(|(other, request)| (other.as_str(), request))
    }

    fn has_port_of(&self, uid: &str, request: &ResourceRequest) -> bool {
        let taken = |port: &HostPort| {
            let mut others = self.others(uid).flat_map(|other| &other.ports);
            others.any(|own| own.conflicts_with(port))
        };
        request.ports.iter().any(taken)
    }

    /// Resources that are short for a pod, and the missing amounts.
    fn missing(&self, uid: &str, request: &ResourceRequest, allocatable: &Allocatable) -> Requirements {
        let names = ["pods"].into_iter().chain(names_to_check(request, allocatable));
        let short = names.map(|name| {
            let used: i64 = self.others(uid).map(|other| other.amount(name)).sum();
            (
                name.to_owned(),
                request.amount(name) - (allocatable.get(name) - used),
            )
        });
        short
            .filter(|(name, amount)| request.amount(name) > 0 && *amount > 0)
            .collect()
    }

    /// The first of these resources that is short for a pod.
    fn shortage<'a>(
        &self,
        uid: &str,
        request: &ResourceRequest,
        allocatable: &Allocatable,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Option<(String, String)> {
        let missing = |name: &str| {
            let (requested, capacity) = (request.get(name), allocatable.get(name));
            let used: i64 = self.others(uid).map(|other| other.get(name)).sum();
            let short = requested > 0 && requested > capacity - used;
            short.then(|| (name.to_owned(), sentence(name, requested, used, capacity)))
        };
        names.into_iter().find_map(missing)
    }
}

fn sentence(name: &str, requested: i64, used: i64, capacity: i64) -> String {
    format!(
        "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
    )
}

/// Resources in upstream's order; those that others announce only where the node has them.
fn names_to_check<'a>(
    request: &'a ResourceRequest,
    allocatable: &Allocatable,
) -> impl Iterator<Item = &'a str> + use<'a> {
    const FIRST: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
    let rest = request.amounts.keys().map(String::as_str);
    let rest = rest
        .filter(|name| !FIRST.contains(name))
        .filter(|name| !is_extended(name) || allocatable.0.contains_key(*name));
    let rest: Vec<&str> = rest.collect();
    FIRST.into_iter().chain(rest)
}

/// Reason why no pod is preempted for a critical one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PreemptionError {
    /// Another pod holds one of its host ports.
    Ports,
    /// No set of victims would free enough.
    Nobody(String),
}

/// A resource that others than the node's agent may announce: cluster-level ones are no node's.
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/")
}

impl NodeAllocations {
    /// Records what a running pod holds already.
    pub(crate) fn hold(&self, uid: &str, request: ResourceRequest) {
        self.inner.lock().requests.insert(uid.to_owned(), request);
        self.changed.notify_one();
    }

    /// Allocates the requests of a new pod, or returns the first shortage in upstream's order.
    pub(crate) fn admit(
        &self,
        uid: &str,
        request: ResourceRequest,
        allocatable: &Allocatable,
    ) -> Result<(), Shortage> {
        let mut inner = self.inner.lock();
        let pods = i64::try_from(inner.others(uid).count()).unwrap_or(i64::MAX);
        let places = allocatable.get("pods");
        // The number of pods comes first, as upstream's `fitsRequest` has it in its list of reasons.
        if pods >= places {
            let text = sentence("pods", 1, pods, places);
            return Err(Shortage::Resource("pods".to_owned(), text));
        }
        let names = names_to_check(&request, allocatable);
        if let Some((name, text)) = inner.shortage(uid, &request, allocatable, names) {
            return Err(Shortage::Resource(name, text));
        }
        if inner.has_port_of(uid, &request) {
            return Err(Shortage::Ports);
        }
        inner.requests.insert(uid.to_owned(), request);
        self.changed.notify_one();
        Ok(())
    }

    /// Allocates the requests of a critical pod and returns the uids of its victims; or, in upstream's words, that no
    /// set of victims would do.
    pub(crate) fn preempt(
        &self,
        uid: &str,
        request: ResourceRequest,
        allocatable: &Allocatable,
    ) -> Result<Vec<String>, PreemptionError> {
        let mut inner = self.inner.lock();
        if inner.has_port_of(uid, &request) {
            return Err(PreemptionError::Ports);
        }
        let needed = inner.missing(uid, &request, allocatable);
        let held: Vec<(&str, &ResourceRequest)> = inner.others_by_uid(uid).collect();
        let victims = choose(&request, &held, &needed).map_err(PreemptionError::Nobody)?;
        if let Some((resource, _)) = needed.first() {
            *inner.preempted.entry(resource.clone()).or_default() += victims.len() as u64;
        }
        inner.requests.insert(uid.to_owned(), request);
        self.changed.notify_one();
        // Allocated before its victims have ended, so that no other pod takes what they free.
        Ok(victims)
    }

    /// Pods preempted for critical ones so far, by the missing resource.
    pub(crate) fn preempted(&self) -> BTreeMap<String, u64> {
        self.inner.lock().preempted.clone()
    }

    /// Reports whether any of these pods still holds its allocation; then `wake` is notified when one is released.
    pub(crate) fn holds_any(&self, uids: &[String], waiting: &str, wake: &Arc<Notify>) -> bool {
        let mut inner = self.inner.lock();
        let holds = uids.iter().any(|uid| inner.requests.contains_key(uid));
        if holds {
            inner.waiting.insert(waiting.to_owned(), wake.clone());
        }
        holds
    }

    /// Changes the allocation of a pod, or returns upstream's message why not; then `wake` is notified when resources
    /// are released.
    pub(crate) fn change(
        &self,
        uid: &str,
        request: ResourceRequest,
        allocatable: &Allocatable,
        wake: &Arc<Notify>,
    ) -> Result<(), String> {
        let mut inner = self.inner.lock();
        if let Some((_, message)) = inner.shortage(uid, &request, allocatable, ["cpu", "memory"]) {
            // Registered under the lock of the check: a release in between would be missed.
            inner.waiting.insert(uid.to_owned(), wake.clone());
            return Err(message);
        }
        let before = inner
            .requests
            .insert(uid.to_owned(), request.clone())
            .unwrap_or_default();
        if ["cpu", "memory"]
            .iter()
            // A pod that shrinks may make room for another one's deferred resize.
            .any(|name| request.get(name) < before.get(name))
        {
            inner.wake_all();
        }
        self.changed.notify_one();
        Ok(())
    }

    /// Releases the allocation of a pod.
    pub(crate) fn release(&self, uid: &str) {
        let mut inner = self.inner.lock();
        inner.waiting.remove(uid);
        if inner.requests.remove(uid).is_some() {
            inner.wake_all();
            self.changed.notify_one();
        }
    }

    /// Sum of the CPU requests of all Burstable pods, in thousandths.
    pub(crate) fn burstable_cpu_millis(&self) -> i64 {
        let inner = self.inner.lock();
        let burstable = inner
            .requests
            .values()
            .filter(|request| request.class == Qos::Burstable);
        burstable.map(|request| request.get("cpu")).sum()
    }

    /// Resolves when an allocation has changed since the last call. For one waiter.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn request(requests: Value) -> ResourceRequest {
        request_with_port(requests, json!([]))
    }

    fn request_with_port(requests: Value, ports: Value) -> ResourceRequest {
        let container = json!({"name": "c", "resources": {"requests": requests}, "ports": ports});
        ResourceRequest::of(&serde_json::from_value(json!({"spec": {"containers": [container]}})).unwrap())
    }

    fn allocatable(amounts: Value) -> Allocatable {
        Allocatable::of(&serde_json::from_value(json!({"status": {"allocatable": amounts}})).unwrap())
    }

    #[test]
    fn resize_waiting_pod_is_woken_when_resources_free_up() {
        let (allocations, node) = (
            NodeAllocations::default(),
            allocatable(json!({"cpu": "1", "memory": "1"})),
        );
        let wake = Arc::new(Notify::new());
        allocations.hold("a", request(json!({"cpu": "500m"})));
        allocations.hold("b", request(json!({"cpu": "400m"})));
        let more = || request(json!({"cpu": "600m"}));
        let refused = allocations.change("b", more(), &node, &wake);
        assert_eq!(
            refused.unwrap_err(),
            "Node didn't have enough resource: cpu, requested: 600, used: 500, capacity: 1000"
        );
        let woken = || futures::FutureExt::now_or_never(wake.notified()).is_some();
        assert!(!woken());
        allocations.release("a");
        assert!(woken());
        allocations.change("b", more(), &node, &wake).unwrap();
        assert_eq!(allocations.burstable_cpu_millis(), 600);
    }

    #[test]
    fn pod_that_is_new_gets_what_the_node_has_left() {
        let node = allocatable(json!({
            "cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi", "pods": "2", "hugepages-2Mi": "0", "test/gpu": "1"
        }));
        let allocations = NodeAllocations::default();
        let ports = json!([{"containerPort": 80, "hostPort": 80}]);
        allocations
            .admit(
                "first",
                request_with_port(json!({"cpu": "600m"}), ports.clone()),
                &node,
            )
            .unwrap();
        #[track_caller]
        fn check(
            allocations: &NodeAllocations,
            node: &Allocatable,
            request: ResourceRequest,
            name: &str,
            text: &str,
        ) {
            let expected = Shortage::Resource(
                name.to_owned(),
                format!("Node didn't have enough resource: {text}"),
            );
            assert_eq!(allocations.admit("second", request, node), Err(expected));
        }
        check(
            &allocations,
            &node,
            request(json!({"cpu": "500m"})),
            "cpu",
            "cpu, requested: 500, used: 600, capacity: 1000",
        );
        check(
            &allocations,
            &node,
            request(json!({"memory": "2Gi", "cpu": "1"})),
            "cpu",
            "cpu, requested: 1000, used: 600, capacity: 1000",
        );
        check(
            &allocations,
            &node,
            request(json!({"hugepages-2Mi": "2Mi"})),
            "hugepages-2Mi",
            "hugepages-2Mi, requested: 2097152, used: 0, capacity: 0",
        );
        check(
            &allocations,
            &node,
            request(json!({"test/gpu": "2"})),
            "test/gpu",
            "test/gpu, requested: 2, used: 0, capacity: 1",
        );
        let taken = request_with_port(json!({}), ports);
        assert_eq!(allocations.admit("second", taken, &node), Err(Shortage::Ports));
        allocations
            .admit("second", request(json!({"cluster/wide": "9"})), &node)
            .unwrap();
        let third = allocations.admit("third", request(json!({})), &node).unwrap_err();
        let text = "Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2";
        assert_eq!(third, Shortage::Resource("pods".to_owned(), text.to_owned()));
    }
}
