//! Nodes fall silent, report that they are not ready, and come back; pods tolerate that for ever, for a minute, or for the
//! default time: no node counts as lost that renews its lease, no pod is evicted that may stay, and in the end taints, pods
//! and nodes agree.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::replica_set::template;
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use controllers_manager::Config;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use machinery_meta::ObjectKey;
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const NODES: u64 = 4;
const LEASES: &str = "kube-node-lease";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Objects write their times in whole seconds, cut off.
const CUT_OFF: SignedDuration = SignedDuration::from_secs(1);
/// Interval at which a node renews its lease.
const RENEW_EVERY: SignedDuration = SignedDuration::from_secs(9);
/// An eviction follows its taint this fast at least, however late messages are.
const LATENESS: Duration = Duration::from_secs(120);
const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Alive,
    NotReady,
    Silent,
}

struct Lifecycle {
    runtime: Option<Runtime>,
    next: u64,
    states: BTreeMap<String, State>,
    /// Times at which a node renewed its lease.
    renewed: BTreeMap<String, Vec<Timestamp>>,
    /// First and last times at which nodes had the taint that evicts.
    first_tainted: BTreeMap<String, Duration>,
    last_tainted: BTreeMap<String, Duration>,
}

impl Scenario for Lifecycle {
    const CONTROLLERS: &'static [&'static str] = &["node-lifecycle-controller", "taint-eviction-controller"];
    const STEPS: u32 = 40;
    const STEP_MILLIS: u64 = 20_000;

    async fn begin(&mut self, world: &World) {
        self.runtime = Some(world.runtime.clone());
        // The server makes it at its start, most of the time.
        let _there = world
            .create::<Namespace>(json!({"metadata": {"name": LEASES}}))
            .await;
        for number in 0..NODES {
            let name = format!("n{number}");
            world.create_node(&name, 1000, 10).await;
            let lease =
                json!({"metadata": {"name": name, "namespace": LEASES}, "spec": {"holderIdentity": name}});
            world.create::<Lease>(lease).await.unwrap();
            self.states.insert(name, State::Alive);
        }
    }

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let name = format!("n{}", world.dice(NODES));
        let state = match world.dice(9) {
            0 => State::Silent,
            1 => State::NotReady,
            2..5 => State::Alive,
            5 => {
                let cordon = json!({"spec": {"unschedulable": world.once_in(2)}});
                return world.patch::<Node>(&ObjectKey::cluster(name), cordon).await;
            }
            _ => return self.make_pod(world, &name).await,
        };
        let node = model.get("Node", "", &name).unwrap();
        self.states.insert(name, state);
        self.speak(world, node).await;
    }

    async fn run_nodes(&mut self, world: &World, model: &ReferenceModel) {
        for node in model.all("Node") {
            self.speak(world, node).await;
        }
        for pod in model
            .all("Pod")
            .filter(|pod| self.state(pod.text("/spec/nodeName")) != State::Silent)
        {
            let alive = self.state(pod.text("/spec/nodeName")) == State::Alive;
            if pod.is_deleting() {
                world.pod_has_ended(pod).await;
            } else if alive && !pod.is_ready_pod() {
                world.pod_is_ready(pod).await;
            }
        }
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        let now = self.runtime.as_ref().unwrap().monotonic();
        let Some(after) = &change.after else { return Ok(()) };
        if after.kind == "Node" {
            if given_up(after) {
                self.first_tainted.entry(after.name().to_owned()).or_insert(now);
                self.last_tainted.insert(after.name().to_owned(), now);
            }
            return self.is_rightly_lost(change, after);
        }
        let leaves = after.kind == "Pod"
            && after.is_deleting()
            && change.before.as_ref().is_some_and(|before| !before.is_deleting());
        if !leaves {
            return Ok(());
        }
        let node = after.text("/spec/nodeName");
        let told = model.get("Node", "", node).is_some_and(|node| given_up(node))
            || self.last_tainted.get(node).is_some_and(|at| now - *at < LATENESS);
        let waited = now - self.first_tainted.get(node).copied().unwrap_or(now);
        match after.label("stays") {
            _ if !told => Err("its node was not given up".to_owned()),
            Some("forever") => Err("it was to stay for ever".to_owned()),
            Some("minute") if waited < MINUTE / 2 => Err(format!("it left after {waited:?}")),
            _ => Ok(()),
        }
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        let unready = self
            .states
            .values()
            .filter(|state| **state != State::Alive)
            .count();
        for node in model.all("Node") {
            self.is_right(node, unready)?;
        }
        for pod in model.all("Pod") {
            let node = model.get("Node", "", pod.text("/spec/nodeName")).unwrap();
            let state = self.state(node.name());
            let leaves = given_up(node) && pod.label("stays") != Some("forever");
            let gone = pod.is_deleting() && state == State::Silent;
            if leaves && !gone || pod.is_deleting() && state != State::Silent {
                return Err(format!(
                    "{} is left on {}, which is {state:?}",
                    pod.key,
                    node.name()
                ));
            }
            // A node that says itself that it is not ready speaks for its pods.
            if pod.is_ready_pod() && state == State::Silent {
                return Err(format!("{} is ready on {}", pod.key, node.name()));
            }
        }
        Ok(())
    }
}

impl Lifecycle {
    fn state(&self, node: &str) -> State {
        self.states[node]
    }

    /// Writes a node's lease, and its readiness where that is not what it should be.
    async fn speak(&mut self, world: &World, node: &ObjectVersion) {
        let state = self.state(node.name());
        if state == State::Silent {
            return;
        }
        let ready = state == State::Alive;
        if node.condition("Ready") != if ready { "True" } else { "False" } {
            let conditions = [world.condition("Ready", ready)];
            world
                .patch_status::<Node>(&node.key, json!({"conditions": conditions}))
                .await;
        }
        let renewed = self.renewed.entry(node.name().to_owned()).or_default();
        let now = world.runtime.now();
        if renewed
            .last()
            .is_some_and(|last| now.duration_since(*last) < RENEW_EVERY)
        {
            return;
        }
        let time = now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let lease = ObjectKey::new(LEASES, node.name());
        world
            .patch::<Lease>(&lease, json!({"spec": {"renewTime": time}}))
            .await;
        renewed.push(world.runtime.now());
    }

    async fn make_pod(&mut self, world: &World, node: &str) {
        self.next += 1;
        let minute = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": MINUTE.as_secs()});
        let (stays, tolerations): (&str, Value) = match world.dice(3) {
            0 => ("forever", json!([{"operator": "Exists"}])),
            1 => ("minute", json!([minute(NOT_READY), minute(UNREACHABLE)])),
            _ => ("default", json!([])),
        };
        let mut pod = template(&json!({"stays": stays}));
        pod["metadata"]["name"] = json!(format!("p{}", self.next));
        pod["spec"]["nodeName"] = json!(node);
        pod["spec"]["tolerations"] = tolerations;
        world.create::<Pod>(pod).await.unwrap();
    }

    fn is_rightly_lost(&self, change: &Change, after: &ObjectVersion) -> Result<(), String> {
        let Some(before) = &change.before else {
            return Ok(());
        };
        if after.condition("Ready") == "Unknown" && before.condition("Ready") != "Unknown" {
            self.is_rightly_silent(before, after)?;
        }
        if given_up(after) && !given_up(before) && after.condition("Ready") == "True" {
            return Err("given up though it is ready".to_owned());
        }
        Ok(())
    }

    /// A node that becomes unknown gave no sign of life for the grace period before the controller decided so. Its heartbeats after
    /// that, while the controller's writes were on their way, no controller could know.
    fn is_rightly_silent(&self, before: &ObjectVersion, after: &ObjectVersion) -> Result<(), String> {
        let decided = ready_time(after, "lastTransitionTime").unwrap();
        let renewed = self.renewed.get(after.name()).into_iter().flatten();
        let last = renewed.filter(|at| **at <= decided).max().copied();
        let last = last.max(ready_time(before, "lastHeartbeatTime"));
        let silent = decided.duration_since(last.unwrap_or(Timestamp::MIN));
        let grace = SignedDuration::try_from(Config::default().node_monitor_grace_period).unwrap();
        if silent + CUT_OFF < grace {
            return Err(format!("unknown after a silence of {silent:?}"));
        }
        Ok(())
    }

    /// Conditions and taints say what the node does.
    fn is_right(&self, node: &ObjectVersion, unready: usize) -> Result<(), String> {
        let (ready, key) = match self.state(node.name()) {
            State::Alive => ("True", None),
            State::NotReady => ("False", Some(NOT_READY)),
            State::Silent => ("Unknown", Some(UNREACHABLE)),
        };
        let mut expected: Vec<(&str, &str)> = key.map(|key| (key, "NoSchedule")).into_iter().collect();
        if node.at("/spec/unschedulable") == Some(&json!(true)) {
            expected.push(("node.kubernetes.io/unschedulable", "NoSchedule"));
        }
        // Of three in four, no other is tainted; of all, none.
        let may = key.filter(|_| unready < 4).map(|key| (key, "NoExecute"));
        let must = may.filter(|_| unready < 3);
        let have: Vec<(&str, &str)> = node.list("/spec/taints").iter().map(taint).collect();
        let right = node.condition("Ready") == ready
            && expected.iter().chain(&must).all(|own| have.contains(own))
            && have.iter().all(|own| expected.contains(own) || may == Some(*own));
        if right {
            return Ok(());
        }
        Err(format!(
            "{} is to be {ready} and {unready} are not, it has {have:?}",
            node.name()
        ))
    }
}

fn taint(own: &Value) -> (&str, &str) {
    (own["key"].as_str().unwrap(), own["effect"].as_str().unwrap())
}

/// One of the times of a node's `Ready`.
fn ready_time(node: &ObjectVersion, name: &str) -> Option<Timestamp> {
    let conditions = node.list("/status/conditions");
    let ready = conditions.iter().find(|own| own["type"] == "Ready")?;
    ready[name].as_str()?.parse().ok()
}

fn given_up(node: &ObjectVersion) -> bool {
    node.list("/spec/taints")
        .iter()
        .map(taint)
        .any(|(_, effect)| effect == "NoExecute")
}

#[test]
fn node_lifecycle_scenario() {
    run_seeds(|| Lifecycle {
        runtime: None,
        next: 0,
        states: BTreeMap::new(),
        renewed: BTreeMap::new(),
        first_tainted: BTreeMap::new(),
        last_tainted: BTreeMap::new(),
    });
}
