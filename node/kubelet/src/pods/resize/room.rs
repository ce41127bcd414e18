//! Which pod has how much of this node: resources, ports, a place among its pods.

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
use crate::pods::spec;

/// What one pod has: amounts in the resource's own unit, of processors in thousandths.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Share {
    amounts: BTreeMap<String, i64>,
    ports: Vec<HostPort>,
    class: Qos,
    priority: Option<i32>,
}

/// Pods of at least this priority are critical.
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

impl Share {
    /// What a pod asks for.
    pub fn of(pod: &Pod) -> Self {
        Self {
            amounts: amounts(&pod_requests(spec(pod))),
            ports: host_ports(spec(pod)),
            class: qos(pod),
            priority: spec(pod).priority,
        }
    }

    fn get(&self, name: &str) -> i64 {
        self.amounts.get(name).copied().unwrap_or(0)
    }

    /// What the pod asks for; of places one.
    pub fn request(&self, name: &str) -> i64 {
        match name {
            "pods" => 1,
            name => self.get(name),
        }
    }

    /// The pod's class.
    pub fn class(&self) -> Qos {
        self.class
    }

    /// Whether others end so that it can run.
    pub fn is_critical(&self) -> bool {
        self.priority
            .is_some_and(|priority| priority >= CRITICAL_PRIORITY)
    }

    /// Whether it may have the place of another.
    pub fn may_preempt(&self, other: &Self) -> bool {
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

/// What a node has for its pods, as its object says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Allocatable(BTreeMap<String, i64>);

impl Allocatable {
    /// That of this node.
    pub fn of(node: &Node) -> Self {
        let status = node.status.as_ref();
        let list = status.and_then(|status| status.allocatable.as_ref());
        Self(amounts(&ResourceList::from_api(list)))
    }

    fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }
}

/// What there is too little of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shortage {
    /// A resource, and upstream's sentence.
    Resource(String, String),
    /// A port of the node that another pod has.
    Ports,
}

/// What the node's pods have, by uid.
#[derive(Debug, Default)]
pub struct Room {
    inner: Mutex<Promises>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Promises {
    shares: BTreeMap<String, Share>,
    /// Those that wait for more, and how they are woken.
    waiting: BTreeMap<String, Arc<Notify>>,
    /// Pods that were ended for critical ones so far, by the resource that was missing.
    preempted: BTreeMap<String, u64>,
}

impl Promises {
    fn wake_all(&mut self) {
        std::mem::take(&mut self.waiting)
            .into_values()
            .for_each(|wake| wake.notify_one());
    }

    fn others<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = &'a Share> {
        self.others_by_uid(uid).map(|(_, share)| share)
    }

    fn others_by_uid<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = (&'a str, &'a Share)> {
        let others = self.shares.iter().filter(move |(other, _)| *other != uid);
        others.map(|(other, share)| (other.as_str(), share))
    }

    fn has_port_of(&self, uid: &str, share: &Share) -> bool {
        let taken = |port: &HostPort| {
            let mut others = self.others(uid).flat_map(|other| &other.ports);
            others.any(|own| own.conflicts_with(port))
        };
        share.ports.iter().any(taken)
    }

    /// What a pod does not find, and how much of it.
    fn missing(&self, uid: &str, share: &Share, allocatable: &Allocatable) -> Requirements {
        let names = ["pods"].into_iter().chain(names_to_look_at(share, allocatable));
        let short = names.map(|name| {
            let used: i64 = self.others(uid).map(|other| other.request(name)).sum();
            (
                name.to_owned(),
                share.request(name) - (allocatable.get(name) - used),
            )
        });
        short
            .filter(|(name, amount)| share.request(name) > 0 && *amount > 0)
            .collect()
    }

    /// The first of these resources that a pod does not find enough of.
    fn shortage<'a>(
        &self,
        uid: &str,
        share: &Share,
        allocatable: &Allocatable,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Option<(String, String)> {
        let missing = |name: &str| {
            let (requested, capacity) = (share.get(name), allocatable.get(name));
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
fn names_to_look_at<'a>(
    share: &'a Share,
    allocatable: &Allocatable,
) -> impl Iterator<Item = &'a str> + use<'a> {
    const FIRST: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
    let rest = share.amounts.keys().map(String::as_str);
    let rest = rest
        .filter(|name| !FIRST.contains(name))
        .filter(|name| !is_extended(name) || allocatable.0.contains_key(*name));
    let rest: Vec<&str> = rest.collect();
    FIRST.into_iter().chain(rest)
}

/// Why nobody ends for a critical pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreemptionError {
    /// Another has a port of it.
    Ports,
    /// Nobody's end would do.
    Nobody(String),
}

/// A resource that others than the node's agent may announce: cluster-level ones are no node's.
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/")
}

impl Room {
    /// A pod has this much already.
    pub fn hold(&self, uid: &str, share: Share) {
        self.inner.lock().shares.insert(uid.to_owned(), share);
        self.changed.notify_one();
    }

    /// Gives a pod that is new here what it asks for, or says what there is too little of, in upstream's order.
    pub fn admit(&self, uid: &str, share: Share, allocatable: &Allocatable) -> Result<(), Shortage> {
        let mut inner = self.inner.lock();
        let pods = i64::try_from(inner.others(uid).count()).unwrap_or(i64::MAX);
        let places = allocatable.get("pods");
        if pods >= places {
            let text = sentence("pods", 1, pods, places);
            return Err(Shortage::Resource("pods".to_owned(), text));
        }
        let names = names_to_look_at(&share, allocatable);
        if let Some((name, text)) = inner.shortage(uid, &share, allocatable, names) {
            return Err(Shortage::Resource(name, text));
        }
        if inner.has_port_of(uid, &share) {
            return Err(Shortage::Ports);
        }
        inner.shares.insert(uid.to_owned(), share);
        self.changed.notify_one();
        Ok(())
    }

    /// Gives a critical pod what it asks for at the cost of others, and says which of them are to end for it; or, in
    /// upstream's words, that nobody's end would do.
    pub fn preempt(
        &self,
        uid: &str,
        share: Share,
        allocatable: &Allocatable,
    ) -> Result<Vec<String>, PreemptionError> {
        let mut inner = self.inner.lock();
        if inner.has_port_of(uid, &share) {
            return Err(PreemptionError::Ports);
        }
        let needed = inner.missing(uid, &share, allocatable);
        let held: Vec<(&str, &Share)> = inner.others_by_uid(uid).collect();
        let victims = choose(&share, &held, &needed).map_err(PreemptionError::Nobody)?;
        if let Some((resource, _)) = needed.first() {
            *inner.preempted.entry(resource.clone()).or_default() += victims.len() as u64;
        }
        inner.shares.insert(uid.to_owned(), share);
        self.changed.notify_one();
        Ok(victims)
    }

    /// How many pods were ended for critical ones so far, by the resource that was missing.
    pub fn preempted(&self) -> BTreeMap<String, u64> {
        self.inner.lock().preempted.clone()
    }

    /// Whether any of these has its share still; then the pod that waits for it is woken when one has not.
    pub fn holds_any(&self, uids: &[String], waiting: &str, wake: &Arc<Notify>) -> bool {
        let mut inner = self.inner.lock();
        let holds = uids.iter().any(|uid| inner.shares.contains_key(uid));
        if holds {
            inner.waiting.insert(waiting.to_owned(), wake.clone());
        }
        holds
    }

    /// Gives a pod another share, or says in upstream's words why not; then it is woken when there may be room.
    pub fn change(
        &self,
        uid: &str,
        share: Share,
        allocatable: &Allocatable,
        wake: &Arc<Notify>,
    ) -> Result<(), String> {
        let mut inner = self.inner.lock();
        if let Some((_, message)) = inner.shortage(uid, &share, allocatable, ["cpu", "memory"]) {
            inner.waiting.insert(uid.to_owned(), wake.clone());
            return Err(message);
        }
        let before = inner
            .shares
            .insert(uid.to_owned(), share.clone())
            .unwrap_or_default();
        if ["cpu", "memory"]
            .iter()
            .any(|name| share.get(name) < before.get(name))
        {
            inner.wake_all();
        }
        self.changed.notify_one();
        Ok(())
    }

    /// A pod uses nothing any more.
    pub fn release(&self, uid: &str) {
        let mut inner = self.inner.lock();
        inner.waiting.remove(uid);
        if inner.shares.remove(uid).is_some() {
            inner.wake_all();
            self.changed.notify_one();
        }
    }

    /// Thousandths of a processor that the pods of the Burstable class ask for together.
    pub fn burstable_cpu_millis(&self) -> i64 {
        let inner = self.inner.lock();
        let burstable = inner
            .shares
            .values()
            .filter(|share| share.class == Qos::Burstable);
        burstable.map(|share| share.get("cpu")).sum()
    }

    /// Resolves when some pod's share has changed since this was called last. For one waiter.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn share(requests: Value) -> Share {
        share_with_port(requests, json!([]))
    }

    fn share_with_port(requests: Value, ports: Value) -> Share {
        let container = json!({"name": "c", "resources": {"requests": requests}, "ports": ports});
        Share::of(&serde_json::from_value(json!({"spec": {"containers": [container]}})).unwrap())
    }

    fn allocatable(amounts: Value) -> Allocatable {
        Allocatable::of(&serde_json::from_value(json!({"status": {"allocatable": amounts}})).unwrap())
    }

    #[test]
    fn resize_waiting_pod_is_woken_when_resources_free_up() {
        let (room, node) = (Room::default(), allocatable(json!({"cpu": "1", "memory": "1"})));
        let wake = Arc::new(Notify::new());
        room.hold("a", share(json!({"cpu": "500m"})));
        room.hold("b", share(json!({"cpu": "400m"})));
        let more = || share(json!({"cpu": "600m"}));
        let refused = room.change("b", more(), &node, &wake);
        assert_eq!(
            refused.unwrap_err(),
            "Node didn't have enough resource: cpu, requested: 600, used: 500, capacity: 1000"
        );
        let woken = || futures::FutureExt::now_or_never(wake.notified()).is_some();
        assert!(!woken());
        room.release("a");
        assert!(woken());
        room.change("b", more(), &node, &wake).unwrap();
        assert_eq!(room.burstable_cpu_millis(), 600);
    }

    #[test]
    fn pod_that_is_new_gets_what_the_node_has_left() {
        let node = allocatable(json!({
            "cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi", "pods": "2", "hugepages-2Mi": "0", "test/gpu": "1"
        }));
        let room = Room::default();
        let ports = json!([{"containerPort": 80, "hostPort": 80}]);
        room.admit(
            "first",
            share_with_port(json!({"cpu": "600m"}), ports.clone()),
            &node,
        )
        .unwrap();
        #[track_caller]
        fn check(room: &Room, node: &Allocatable, share: Share, name: &str, text: &str) {
            let expected = Shortage::Resource(
                name.to_owned(),
                format!("Node didn't have enough resource: {text}"),
            );
            assert_eq!(room.admit("second", share, node), Err(expected));
        }
        check(
            &room,
            &node,
            share(json!({"cpu": "500m"})),
            "cpu",
            "cpu, requested: 500, used: 600, capacity: 1000",
        );
        check(
            &room,
            &node,
            share(json!({"memory": "2Gi", "cpu": "1"})),
            "cpu",
            "cpu, requested: 1000, used: 600, capacity: 1000",
        );
        check(
            &room,
            &node,
            share(json!({"hugepages-2Mi": "2Mi"})),
            "hugepages-2Mi",
            "hugepages-2Mi, requested: 2097152, used: 0, capacity: 0",
        );
        check(
            &room,
            &node,
            share(json!({"test/gpu": "2"})),
            "test/gpu",
            "test/gpu, requested: 2, used: 0, capacity: 1",
        );
        let taken = share_with_port(json!({}), ports);
        assert_eq!(room.admit("second", taken, &node), Err(Shortage::Ports));
        room.admit("second", share(json!({"cluster/wide": "9"})), &node)
            .unwrap();
        let third = room.admit("third", share(json!({})), &node).unwrap_err();
        let text = "Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2";
        assert_eq!(third, Shortage::Resource("pods".to_owned(), text.to_owned()));
    }
}
