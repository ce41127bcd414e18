//! Stories on the pure core: nodes and pods in, a node or upstream's message out.

use crate::algorithm::{Algorithm, FitError, Nominations};
use crate::attempt::Attempt;
use crate::config::args::DefaultPreemptionArgs;
use crate::decision::Decision;
use crate::framework::ClusterEvents;
use crate::nodes::NodeTable;
use crate::object::{Node, Pod};
use crate::plugins::default_plugins;
use crate::pod::PodInfo;
use crate::preemption::{Budget, Budgets, DryRun, Surroundings};
use crate::queue::{MAX_UNSCHEDULABLE, Queue};
use crate::scheduler::Scheduler;
use crate::volumes::{Claim, Class, Volume};
use machinery_meta::ObjectKey;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

mod actions;
mod binding;
mod devices;
mod dry_run;
mod extenders;
mod long_affinity;
mod long_lists;
mod long_terms;
mod node_facts;
mod nominations;
mod profiles;
mod queueing_hints;
mod shapes;
mod sparse_counts;
mod turns;
mod upstream_preemption;
mod upstream_queue;
mod view_memory;
mod volumes;

struct World {
    nodes: NodeTable,
    algorithm: Algorithm,
    nominations: Nominations,
    pods: usize,
}

impl World {
    fn new(nodes: Value) -> Self {
        let mut world = Self {
            nodes: NodeTable::default(),
            algorithm: Algorithm::new(default_plugins()),
            nominations: Nominations::default(),
            pods: 0,
        };
        for node in nodes.as_array().unwrap() {
            world.nodes.set_node(&make_node(node));
        }
        world
    }

    fn place(&mut self, pod: &Arc<PodInfo>) -> Result<String, String> {
        let attempt = Attempt::new(pod);
        let placed = self
            .algorithm
            .place(&attempt, &mut self.nodes, &self.nominations, 0);
        placed
            .map(|node| self.nodes.names[node].to_string())
            .map_err(|unplaced| unplaced.message())
    }

    /// A pod that already runs.
    fn runs(&mut self, spec: Value, node: &str) -> Arc<PodInfo> {
        self.pods += 1;
        let pod = make_pod(&format!("running-{}", self.pods), spec);
        self.nodes.set_pod(&pod, node);
        pod
    }
}

/// A node from `{"name", "labels", "cpu", …}`, with room for everything else.
pub(crate) fn make_node(short: &Value) -> Node {
    let name = short["name"].as_str().unwrap();
    let mut labels = json!({"kubernetes.io/hostname": name});
    if let Some(zone) = short["zone"].as_str() {
        labels["topology.kubernetes.io/zone"] = zone.into();
    }
    for (key, value) in short["labels"].as_object().into_iter().flatten() {
        labels[key] = value.clone();
    }
    let or = |key: &str, other: &str| short[key].as_str().unwrap_or(other).to_owned();
    let mut allocatable =
        json!({"cpu": or("cpu", "4"), "memory": or("memory", "8Gi"), "pods": or("pods", "110")});
    if let Some(gpus) = short["gpu"].as_str() {
        allocatable["example.com/gpu"] = gpus.into();
    }
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": short["taints"].as_array().cloned().unwrap_or_default(),
                 "unschedulable": short["unschedulable"].as_bool().unwrap_or(false)},
        "status": {"allocatable": allocatable}
    }))
    .unwrap()
}

/// A pod from its spec; `cpu`, `labels`, `start` and `nominated` are short for what they say.
pub(crate) fn make_pod(name: &str, mut spec: Value) -> Arc<PodInfo> {
    let labels = spec["labels"].take();
    let cpu = spec["cpu"].take();
    if spec["containers"].is_null() {
        spec["containers"] = json!([{"name": "c"}]);
    }
    if !cpu.is_null() {
        spec["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    }
    let start = spec["start"].take();
    let nominated = spec["nominated"].take();
    let nominated = nominated.as_str().unwrap_or_default();
    let spec = Value::Object(
        spec.as_object()
            .unwrap()
            .clone()
            .into_iter()
            .filter(|(_, v)| !v.is_null())
            .collect(),
    );
    let labels = if labels.is_null() { json!({}) } else { labels };
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": labels}, "spec": spec,
        "status": {"startTime": start, "nominatedNodeName": nominated}
    }))
    .unwrap();
    Arc::new(PodInfo::new(pod))
}

#[track_caller]
fn check(nodes: Value, pod: Value, expected: Result<&str, &str>) {
    let mut world = World::new(nodes);
    let placed = world.place(&make_pod("p", pod));
    assert_eq!(placed.as_deref().map_err(|message| message.as_str()), expected);
}

#[test]
fn nodes_are_rejected_in_upstream_words() {
    check(json!([]), json!({}), Err("no nodes available to schedule pods"));
    check(
        json!([
            {"name": "small", "cpu": "1"},
            {"name": "tainted-1", "taints": [{"key": "a", "effect": "NoSchedule"}]},
            {"name": "tainted-2", "taints": [{"key": "a", "effect": "NoExecute"}]}]),
        json!({"cpu": "2"}),
        Err("0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s)."),
    );
    check(
        json!([{"name": "a", "cpu": "1", "memory": "1", "pods": "0"}]),
        json!({"containers": [{"resources": {"requests": {"cpu": "2", "memory": "2", "example.com/gpu": "1"}}}]}),
        Err(
            "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient example.com/gpu, \
             1 Insufficient memory, 1 Too many pods.",
        ),
    );
    check(
        json!([{"name": "a", "unschedulable": true}]),
        json!({}),
        Err("0/1 nodes are available: 1 node(s) were unschedulable."),
    );
    check(
        json!([{"name": "a"}, {"name": "b"}]),
        json!({"nodeSelector": {"disk": "ssd"}}),
        Err("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."),
    );
}

#[test]
fn node_name_affinity_limits_candidates() {
    let named = |name: &str| {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
            [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]}}}})
    };
    check(json!([{"name": "a"}, {"name": "b"}]), named("b"), Ok("b"));
    check(
        json!([{"name": "a"}, {"name": "b", "unschedulable": true}]),
        named("b"),
        Err(
            "0/2 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeAffinity], \
             1 node(s) were unschedulable.",
        ),
    );
}

#[test]
fn tolerated_taints_and_preferences() {
    let taint = json!([{"key": "a", "value": "b", "effect": "NoSchedule"}]);
    let tolerates = json!({"tolerations": [{"key": "a", "operator": "Equal", "value": "b"}]});
    check(json!([{"name": "n", "taints": taint}]), tolerates, Ok("n"));
    let soft = json!([{"key": "a", "effect": "PreferNoSchedule"}]);
    check(
        json!([{"name": "n", "taints": soft}, {"name": "m"}]),
        json!({}),
        Ok("m"),
    );
    check(
        json!([{"name": "x"}, {"name": "y", "labels": {"disk": "ssd"}}]),
        json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}]}}}),
        Ok("y"),
    );
}

#[test]
fn scores_prefer_emptier_node_and_host_ports_exclude() {
    let mut world = World::new(json!([{"name": "a"}, {"name": "b"}]));
    world.runs(json!({"cpu": "2"}), "a");
    assert_eq!(
        world.place(&make_pod("p", json!({"cpu": "1"}))),
        Ok("b".to_owned())
    );
    let port =
        |ip: &str| json!({"containers": [{"ports": [{"hostPort": 80, "hostIP": ip, "protocol": "TCP"}]}]});
    world.runs(port(""), "b");
    assert_eq!(world.place(&make_pod("q", port("1.2.3.4"))), Ok("a".to_owned()));
    world.runs(port("0.0.0.0"), "a");
    let message = "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports.";
    assert_eq!(world.place(&make_pod("q", port(""))), Err(message.to_owned()));
}

#[test]
fn shape_cache_catches_up_with_changed_rows() {
    let mut world = World::new(json!([{"name": "a", "cpu": "1"}]));
    let pod = make_pod("p", json!({"cpu": "1"}));
    assert_eq!(world.place(&pod), Ok("a".to_owned()));
    world.nodes.set_pod(&pod, "a");
    let second = make_pod("q", json!({"cpu": "1"}));
    assert!(world.place(&second).is_err());
    world
        .nodes
        .set_node(&make_node(&json!({"name": "b", "cpu": "1"})));
    assert_eq!(world.place(&second), Ok("b".to_owned()));
    world.nodes.remove_node("b");
    assert!(world.place(&second).is_err());
    world.nodes.remove_pod(&pod.key);
    assert_eq!(world.place(&second), Ok("a".to_owned()));
}

fn spread(key: &str, when: &str) -> Value {
    json!({"labels": {"app": "x"}, "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": key,
        "whenUnsatisfiable": when, "labelSelector": {"matchLabels": {"app": "x"}}}]})
}

#[test]
fn hard_spread_evens_out_zones() {
    let zone = "topology.kubernetes.io/zone";
    let mut world = World::new(json!([
        {"name": "a", "zone": "1"}, {"name": "b", "zone": "2", "cpu": "1"}, {"name": "c"}]));
    world.runs(json!({"labels": {"app": "x"}}), "a");
    assert_eq!(
        world.place(&make_pod("p", spread(zone, "DoNotSchedule"))),
        Ok("b".to_owned())
    );
    world.runs(json!({"cpu": "1"}), "b");
    let mut wants = spread(zone, "DoNotSchedule");
    wants["cpu"] = "1".into();
    let expected = "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match pod topology spread \
                    constraints, 1 node(s) didn't match pod topology spread constraints (missing required label).";
    assert_eq!(world.place(&make_pod("p", wants)), Err(expected.to_owned()));
}

#[test]
fn soft_spread_prefers_the_node_with_fewer() {
    let mut world = World::new(json!([{"name": "a"}, {"name": "b"}]));
    world.runs(json!({"labels": {"app": "x"}}), "a");
    world.runs(json!({"labels": {"app": "y"}}), "b");
    world.runs(json!({"labels": {"app": "y"}}), "b");
    assert_eq!(
        world.place(&make_pod("p", spread("kubernetes.io/hostname", "ScheduleAnyway"))),
        Ok("b".to_owned())
    );
}

fn affinity(side: &str, key: &str) -> Value {
    json!({"labels": {"app": "x"}, "affinity": {side: {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "x"}}}]}}})
}

#[test]
fn pods_that_want_to_be_together_and_apart() {
    let zone = "topology.kubernetes.io/zone";
    let nodes = json!([{"name": "a", "zone": "1"}, {"name": "b", "zone": "2"}]);
    let mut world = World::new(nodes.clone());
    assert!(
        world
            .place(&make_pod("first", affinity("podAffinity", zone)))
            .is_ok(),
        "the first may go anywhere"
    );
    world.runs(json!({"labels": {"app": "x"}, "cpu": "3"}), "b");
    assert_eq!(
        world.place(&make_pod("p", affinity("podAffinity", zone))),
        Ok("b".to_owned())
    );

    let mut world = World::new(nodes);
    let first = make_pod("first", affinity("podAntiAffinity", zone));
    world.nodes.set_pod(&first, "a");
    assert_eq!(
        world.place(&make_pod("p", affinity("podAntiAffinity", zone))),
        Ok("b".to_owned())
    );
    assert_eq!(
        world.place(&make_pod("q", json!({"labels": {"app": "x"}}))),
        Ok("b".to_owned())
    );
    world.runs(affinity("podAntiAffinity", zone), "b");
    let expected = "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.";
    assert_eq!(
        world.place(&make_pod("p", affinity("podAntiAffinity", zone))),
        Err(expected.to_owned())
    );
    let expected = "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules.";
    assert_eq!(
        world.place(&make_pod("q", json!({"labels": {"app": "x"}}))),
        Err(expected.to_owned())
    );
}

fn preempt(
    world: &mut World,
    pod: &Arc<PodInfo>,
    budgets: &Budgets,
) -> Result<(String, Vec<String>), String> {
    let attempt = Attempt::new(pod);
    let unplaced = world
        .algorithm
        .place(&attempt, &mut world.nodes, &world.nominations, 0)
        .unwrap_err();
    let FitError::Unfit { resolvable, .. } = unplaced else {
        panic!("no nodes")
    };
    let around = Surroundings {
        algorithm: &world.algorithm,
        nominations: &world.nominations,
        budgets,
    };
    let nodes = &mut world.nodes;
    let begun = DryRun::begin(pod, nodes, &resolvable, 0, DefaultPreemptionArgs::default());
    let mut dry_run = begun.map_err(|message| message.0)?;
    assert!(dry_run.advance(&attempt, nodes, around, usize::MAX));
    let found = dry_run.end().map_err(|message| message.0)?;
    let victims = found
        .victims
        .iter()
        .map(|victim| victim.key.name.clone())
        .collect();
    Ok((nodes.names[found.node].to_string(), victims))
}

#[test]
fn preemption_takes_the_fewest_and_least_important() {
    let mut world = World::new(json!([{"name": "a"}, {"name": "b"}]));
    world.runs(json!({"cpu": "2", "priority": 5}), "a");
    world.runs(json!({"cpu": "2", "priority": 1}), "a");
    world.runs(json!({"cpu": "4", "priority": 5}), "b");
    let pod = make_pod("p", json!({"cpu": "1", "priority": 10}));
    assert_eq!(
        preempt(&mut world, &pod, &Budgets::new()),
        Ok(("a".into(), vec!["running-2".into()]))
    );
    let never = make_pod(
        "n",
        json!({"cpu": "1", "priority": 10, "preemptionPolicy": "Never"}),
    );
    let message = "not eligible due to preemptionPolicy=Never.".to_owned();
    assert_eq!(preempt(&mut world, &never, &Budgets::new()), Err(message));
    let low = make_pod("l", json!({"cpu": "1"}));
    let message = "0/2 nodes are available: 2 No preemption victims found for incoming pod.".to_owned();
    assert_eq!(preempt(&mut world, &low, &Budgets::new()), Err(message));
}

#[test]
fn preemption_spares_budgets_where_it_can() {
    let mut world = World::new(json!([{"name": "a"}]));
    world.runs(json!({"cpu": "2", "labels": {"app": "kept"}}), "a");
    world.runs(json!({"cpu": "2", "labels": {"app": "free"}, "priority": 1}), "a");
    let selector = serde_json::from_value(json!({"matchLabels": {"app": "kept"}})).unwrap();
    let budget = Budget {
        selector: Some(selector),
        disruptions_allowed: 0,
        disrupted_pods: BTreeSet::new(),
    };
    let budgets = Budgets::from([(ObjectKey::new("ns", "b"), budget)]);
    let pod = make_pod("p", json!({"cpu": "1", "priority": 10}));
    assert_eq!(
        preempt(&mut world, &pod, &budgets),
        Ok(("a".into(), vec!["running-2".into()]))
    );
}

#[test]
fn nominated_room_is_respected_by_lower_priority() {
    let mut world = World::new(json!([{"name": "a"}]));
    let promised = make_pod("promised", json!({"cpu": "3", "priority": 10}));
    world.nominations.add(&promised, "a");
    assert!(world.place(&make_pod("lesser", json!({"cpu": "2"}))).is_err());
    assert!(
        world
            .place(&make_pod("greater", json!({"cpu": "2", "priority": 20})))
            .is_ok()
    );
    assert!(world.place(&promised).is_ok());
}

#[test]
fn queue_orders_backs_off_and_wakes() {
    let second = Duration::from_secs;
    let mut queue = Queue::default();
    let low = make_pod("low", json!({}));
    let high = make_pod("high", json!({"priority": 5}));
    let gated = make_pod("gated", json!({"schedulingGates": [{"name": "g"}]}));
    queue.set(low.clone(), None, second(0));
    queue.set(high.clone(), None, second(1));
    queue.set(gated.clone(), Some("SchedulingGates"), second(1));
    assert_eq!(queue.pop(second(1)).unwrap().pod.key.name, "high");
    queue.reject(&high.key, BTreeSet::new(), ClusterEvents::NODE_ADD, second(1));
    assert_eq!(queue.pop(second(1)).unwrap().pod.key.name, "low");
    // What happens while a pod is tried is not missed by its rejection.
    queue.happened(ClusterEvents::POD_GONE, second(1));
    queue.reject(&low.key, BTreeSet::new(), ClusterEvents::POD_GONE, second(1));
    assert_eq!(queue.next_wake(), Some(second(2)), "low backs off for a second");
    queue.happened(ClusterEvents::NODE_TAINT, second(5));
    assert_eq!(queue.pop(second(5)).unwrap().pod.key.name, "low");
    queue.retry(&low.key, second(5));
    assert!(
        queue.pop(second(5)).is_none(),
        "a first error backs off for a second, whatever the pod was rejected for before"
    );
    assert_eq!(queue.next_wake(), Some(second(6)));
    queue.happened(ClusterEvents::NODE_ADD, second(6));
    assert_eq!(queue.pop(second(6)).unwrap().pod.key.name, "high");
    queue.reject(&high.key, BTreeSet::new(), ClusterEvents::NODE_ADD, second(6));
    queue.remove(&low.key);
    assert_eq!(queue.next_wake(), Some(second(6) + MAX_UNSCHEDULABLE));
    queue.set(make_pod("gated", json!({})), None, second(7));
    assert_eq!(queue.pop(second(7)).unwrap().pod.key.name, "gated");
}

/// A cluster of one node, and the verdict on a pod with this claim.
#[track_caller]
fn check_claim(pod: Value, arrange: impl FnOnce(&mut Scheduler), expected: Result<&str, &str>) {
    let mut scheduler = Scheduler::default();
    let node = make_node(&json!({"name": "n1", "zone": "a"}));
    scheduler.node_changed("n1", Some(&node), Duration::ZERO);
    arrange(&mut scheduler);
    let pod = make_pod("p", pod);
    scheduler.pod_changed(&pod.key, Some(&pod), Duration::ZERO);
    let found = match scheduler.decide(Duration::ZERO, 0).unwrap() {
        Decision::Bind { node, .. } => Ok(node.to_string()),
        Decision::Reject {
            message, preemption, ..
        } => {
            assert!(preemption.is_none());
            Err(message)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(found.as_deref().map_err(|message| message.as_str()), expected);
}

fn with_claim(name: &str) -> Value {
    json!({"schedulerName": "default-scheduler", "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]})
}

fn bound_to(volume: &str) -> Claim {
    Claim {
        volume: volume.into(),
        bound: true,
        ..Claim::default()
    }
}

fn claim(scheduler: &mut Scheduler, claim: Claim) {
    let key = ObjectKey::new("ns", "data");
    scheduler.claim_changed(&key, Some(claim), Duration::ZERO);
}

/// The messages are those of upstream's scheduler for the same pods.
#[test]
fn claim_missing_keeps_pod_pending() {
    let of = |message: &'static str| Err(message);
    let data = || with_claim("data");
    check_claim(
        data(),
        |_| {},
        of("0/1 nodes are available: persistentvolumeclaim \"data\" not found. not found"),
    );
    let template = json!({"schedulerName": "default-scheduler", "volumes": [{"name": "v", "ephemeral": {}}]});
    check_claim(
        template,
        |_| {},
        of(
            "0/1 nodes are available: waiting for ephemeral volume controller to create the persistentvolumeclaim \
            \"p-v\". not found",
        ),
    );
    let unbound = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found";
    check_claim(data(), |world| claim(world, Claim::default()), of(unbound));
    check_claim(
        data(),
        |world| {
            let slow = Class {
                waits: Some(false),
                ..Class::default()
            };
            world.class_changed("slow", Some(slow), Duration::ZERO);
            let class = "slow".into();
            claim(
                world,
                Claim {
                    class,
                    ..Claim::default()
                },
            );
        },
        of(unbound),
    );
    check_claim(
        data(),
        |world| {
            let lost = true;
            claim(
                world,
                Claim {
                    lost,
                    ..bound_to("gone")
                },
            );
        },
        of(
            "0/1 nodes are available: persistentvolumeclaim \"data\" bound to non-existent persistentvolume \
            \"gone\". not found",
        ),
    );
    check_claim(
        data(),
        |world| claim(world, bound_to("gone")),
        of("0/1 nodes are available: persistentvolume \"gone\" not found. not found"),
    );
}

#[test]
fn volume_affinity_places_pod_near_volumes() {
    let in_zone = |zone: &str| {
        let zones = json!([{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]);
        Some(serde_json::from_value(json!({"nodeSelectorTerms": [{"matchExpressions": zones}]})).unwrap())
    };
    let on = |nodes| {
        move |world: &mut Scheduler| {
            claim(world, bound_to("disk"));
            let disk = Volume {
                nodes,
                ..Volume::default()
            };
            world.volume_changed("disk", Some(disk), Duration::ZERO);
        }
    };
    check_claim(with_claim("data"), on(None), Ok("n1"));
    check_claim(with_claim("data"), on(in_zone("a")), Ok("n1"));
    let elsewhere = "0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity. \
        preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    check_claim(with_claim("data"), on(in_zone("b")), Err(elsewhere));
}

#[test]
fn claim_created_wakes_its_pod() {
    let mut scheduler = Scheduler::default();
    let node = make_node(&json!({"name": "n1"}));
    scheduler.node_changed("n1", Some(&node), Duration::ZERO);
    let pod = make_pod("p", with_claim("data"));
    scheduler.pod_changed(&pod.key, Some(&pod), Duration::ZERO);
    let first = scheduler.decide(Duration::ZERO, 0);
    assert!(matches!(first, Some(Decision::Reject { .. })));
    scheduler.volume_changed("disk", Some(Volume::default()), Duration::ZERO);
    claim(&mut scheduler, bound_to("disk"));
    let later = Duration::from_secs(60);
    assert!(scheduler.has_work(later), "the claim woke it");
    let second = scheduler.decide(later, 0);
    assert!(matches!(second, Some(Decision::Bind { .. })));
}
