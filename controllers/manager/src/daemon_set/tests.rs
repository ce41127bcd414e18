//! Upstream's tables as data: nodes that are eligible, bounds, and rollouts step by step.

use super::eligibility::{Eligibility, Placement};
use super::new_pod::DaemonPods;
use super::plan::{PodRef, SetRef, Snapshot, keep};
use super::rolling::{Bounds, bounds, roll};
use super::status::status;
use crate::views::{DaemonSetView, NodeView, PodView};
use jiff::Timestamp;
use machinery_client::object::object_of;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

fn cases(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn set(spec: &Value, rolling: &Value) -> SetRef {
    let kind = if rolling.is_null() {
        "OnDelete"
    } else {
        "RollingUpdate"
    };
    let set = json!({
        "metadata": {"name": "d", "namespace": "n", "uid": "set", "generation": 3},
        "spec": {"selector": {"matchLabels": {"app": "d"}},
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": spec},
            "updateStrategy": {"type": kind, "rollingUpdate": rolling}},
    });
    Arc::new(object_of::<DaemonSetView>(&set.to_string()).unwrap())
}

fn pod(name: &str, node: &str, hash: &str, change: &Value) -> PodRef {
    let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "d", "controller-revision-hash": hash}},
        "spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchFields": [field]}]}}}},
        "status": {"phase": "Running"},
    });
    for (path, value) in change.as_object().into_iter().flatten() {
        *pod.pointer_mut(path).unwrap() = value.clone();
    }
    Arc::new(object_of::<PodView>(&pod.to_string()).unwrap())
}

fn ready() -> Value {
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    json!({"/status": {"phase": "Running", "conditions": [ready]}})
}

const EVERYWHERE: Eligibility = Eligibility {
    should_run: true,
    should_continue: true,
};

fn snapshot(set: SetRef, hash: &str, nodes: u64, pods: Vec<PodRef>) -> Snapshot {
    Snapshot {
        set,
        hash: hash.to_owned(),
        nodes: (0..nodes).map(|node| (format!("n{node}"), EVERYWHERE)).collect(),
        pods,
        held: BTreeMap::new(),
        now: now(),
    }
}

#[test]
fn eligibility_is_upstreams() {
    for case in cases(include_str!("../../testdata/daemon_set/eligibility.json")) {
        let labels = json!({"name": "simple-daemon", "type": "production"});
        let node = json!({"metadata": {"name": "test-node", "labels": labels}, "spec": case["node"]});
        let node = object_of::<NodeView>(&node.to_string()).unwrap();
        let set = set(&case["spec"], &Value::Null);
        let found = Placement::of(&set.template).unwrap().of_nodes([&node]);
        let expected = Eligibility {
            should_run: case["run"] == true,
            should_continue: case["stay"] == true,
        };
        assert_eq!(found["test-node"], expected, "{}", case["case"]);
    }
}

#[test]
fn bounds_are_upstreams() {
    for case in cases(include_str!("../../testdata/daemon_set/bounds.json")) {
        let nodes = case["nodes"].as_u64().unwrap();
        let found = bounds(&snapshot(
            set(&json!({}), &case["rolling"]),
            "a",
            nodes,
            Vec::new(),
        ));
        let number = |name: &str| usize::try_from(case[name].as_u64().unwrap()).unwrap();
        let expected = Bounds {
            max_surge: number("surge"),
            max_unavailable: number("unavailable"),
        };
        assert_eq!(found, Some(expected), "{}", case["case"]);
    }
}

/// Nodes, and the pods that changes have left on them.
struct Cluster {
    set: SetRef,
    nodes: u64,
    templates: u64,
    made: u64,
    /// Name, node, hash, and whether it is ready.
    pods: Vec<(String, String, String, bool)>,
}

impl Cluster {
    fn hash(&self) -> String {
        format!("t{}", self.templates)
    }

    fn snapshot(&self) -> Snapshot {
        let pods = self.pods.iter().map(|(name, node, hash, is_ready)| {
            pod(name, node, hash, &if *is_ready { ready() } else { json!({}) })
        });
        snapshot(self.set.clone(), &self.hash(), self.nodes, pods.collect())
    }

    /// One look of upstream's tests, whose cache shows at once what `keep` did.
    fn look(&mut self) -> [usize; 2] {
        let mut done = [0, 0];
        for decide in [keep, roll] {
            let changes = decide(&self.snapshot());
            done[0] += changes.create.len();
            done[1] += changes.delete.len();
            self.pods
                .retain(|(name, ..)| !changes.delete.iter().any(|gone| gone.name() == name));
            for node in changes.create {
                self.made += 1;
                self.pods
                    .push((format!("p{}", self.made), node, self.hash(), false));
            }
        }
        done
    }
}

#[test]
fn rollouts_are_upstreams() {
    for case in cases(include_str!("../../testdata/daemon_set/rollouts.json")) {
        let mut cluster = Cluster {
            set: set(&json!({}), &case["rolling"]),
            nodes: case["nodes"].as_u64().unwrap(),
            templates: 0,
            made: 0,
            pods: Vec::new(),
        };
        for (at, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            match step.as_str() {
                Some("ready") => cluster.pods.iter_mut().for_each(|pod| pod.3 = true),
                Some(_) => cluster.templates += 1,
                None => assert_eq!(json!(cluster.look()), *step, "step {at} of {}", case["case"]),
            }
        }
    }
}

#[test]
fn pods_that_ended_or_are_too_many_go() {
    let plain = || set(&json!({}), &json!({"maxUnavailable": 1}));
    let old = json!({"/metadata/creationTimestamp": "2025-01-01T00:00:00Z"});
    let phase = |phase: &str| json!({"/status": {"phase": phase}});
    for (pods, create, delete) in [
        (vec![pod("a", "n0", "h", &phase("Failed"))], 0, vec!["a"]),
        (vec![pod("a", "n0", "h", &phase("Succeeded"))], 0, vec!["a"]),
        (
            vec![pod("a", "n0", "h", &json!({})), pod("b", "n0", "h", &old)],
            0,
            vec!["a"],
        ),
        (
            vec![pod("a", "n0", "h", &json!({})), pod("b", "gone", "h", &old)],
            0,
            vec!["b"],
        ),
        (vec![], 1, vec![]),
    ] {
        let changes = keep(&snapshot(plain(), "h", 1, pods));
        let names: Vec<_> = changes.delete.iter().map(|pod| pod.name().to_owned()).collect();
        assert_eq!(
            (changes.create.len(), names),
            (create, delete.into_iter().map(str::to_owned).collect())
        );
    }
    let mut held = snapshot(plain(), "h", 1, vec![pod("a", "n0", "h", &phase("Failed"))]);
    held.held.insert("n0".to_owned(), now());
    let changes = keep(&held);
    assert!(changes.is_empty());
    assert_eq!(changes.requeue_at, Some(now()));
}

#[test]
fn status_counts_nodes() {
    let pods = vec![
        pod("a", "n0", "new", &ready()),
        pod("b", "n1", "old", &ready()),
        pod("c", "n2", "new", &json!({})),
        pod("d", "n4", "new", &ready()),
    ];
    let mut snapshot = snapshot(set(&json!({}), &Value::Null), "new", 5, pods);
    snapshot.nodes.get_mut("n4").unwrap().should_run = false;
    let status = status(&snapshot, true);
    let numbers = [
        status.desired_number_scheduled,
        status.current_number_scheduled,
        status.number_misscheduled,
        status.number_ready,
        status.updated_number_scheduled,
        status.number_available,
        status.number_unavailable,
    ];
    assert_eq!(numbers, [4, 3, 1, 2, 2, 2, 2]);
    assert_eq!(status.observed_generation, 3);
    assert_eq!(super::status::status(&snapshot, false).observed_generation, 0);
}

#[test]
fn new_pods_are_for_their_node() {
    let affinity = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": []}]},
        "preferredDuringSchedulingIgnoredDuringExecution": []}});
    for spec in [
        json!({}),
        json!({"affinity": null}),
        json!({"affinity": affinity, "x": 1}),
    ] {
        let set = set(&spec, &Value::Null);
        let placement = Placement::of(&set.template).unwrap();
        let pods = DaemonPods::of(&set, &placement, "h").unwrap();
        let template = pods.on("n7").unwrap();
        assert_eq!(template.metadata.labels["controller-revision-hash"], "h");
        let made: Value = serde_json::from_str(template.spec.get()).unwrap();
        assert_eq!(made["tolerations"].as_array().unwrap().len(), 6);
        assert_eq!(made["x"], spec["x"]);
        let required = &made["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let field = json!({"key": "metadata.name", "operator": "In", "values": ["n7"]});
        assert_eq!(
            *required,
            json!({"nodeSelectorTerms": [{"matchFields": [field]}]})
        );
        let pod = json!({"metadata": {"name": "p"}, "spec": made});
        assert_eq!(
            &*object_of::<PodView>(&pod.to_string()).unwrap().target_node,
            "n7"
        );
    }
}
