//! Tables for silence and taints.

use super::eviction::{leaves, marked};
use super::plan::{EvictionTaint, is_given_up_on, readiness, silenced, taints};
use crate::views::{NodeView, PodView};
use jiff::Timestamp;
use machinery_client::object::object_of;
use machinery_client::{Object, Projection};
use machinery_meta::ObjectHeader;
use serde_json::{Value, json};

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn node(ready: &str, change: Value) -> NodeView {
    let mut node = json!({"spec": {}, "status": {"conditions": [{"type": "Ready", "status": ready}]}});
    for (key, value) in change.as_object().unwrap() {
        node["spec"][key] = value.clone();
    }
    NodeView::project(&ObjectHeader::default(), node.to_string().as_bytes()).unwrap()
}

#[track_caller]
fn check(node: &NodeView, give_up: EvictionTaint, expected: Option<&[&str]>) {
    let taints = taints(node, give_up, now());
    let got = taints.map(|all| {
        all.iter()
            .map(|own| format!("{}:{}", own.key, own.effect))
            .collect::<Vec<_>>()
    });
    let expected = expected.map(|all| all.iter().map(|own| (*own).to_owned()).collect::<Vec<_>>());
    assert_eq!(got, expected);
}

#[test]
fn conditions_become_taints() {
    check(&node("True", json!({})), EvictionTaint::NotYet, None);
    check(
        &node("False", json!({})),
        EvictionTaint::NotYet,
        Some(&["node.kubernetes.io/not-ready:NoSchedule"]),
    );
    let both = [
        "node.kubernetes.io/unreachable:NoSchedule",
        "node.kubernetes.io/unreachable:NoExecute",
    ];
    check(&node("Unknown", json!({})), EvictionTaint::Yes, Some(&both));
    let cordoned = json!({"unschedulable": true});
    check(
        &node("True", cordoned),
        EvictionTaint::NotYet,
        Some(&["node.kubernetes.io/unschedulable:NoSchedule"]),
    );
    let recovered = json!({"taints": [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        {"key": "own", "effect": "NoExecute"}]});
    check(
        &node("True", recovered),
        EvictionTaint::NotYet,
        Some(&["own:NoExecute"]),
    );
    let unreachable = json!({"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]});
    let swapped = [
        "node.kubernetes.io/not-ready:NoSchedule",
        "node.kubernetes.io/not-ready:NoExecute",
    ];
    check(
        &node("False", unreachable.clone()),
        EvictionTaint::NotYet,
        Some(&swapped),
    );
    check(
        &node("False", unreachable),
        EvictionTaint::Stopped,
        Some(&swapped[..1]),
    );
    // One that has not reported yet.
    check(&NodeView::default(), EvictionTaint::NotYet, None);
    check(&NodeView::default(), EvictionTaint::Yes, None);
}

#[test]
fn heartbeat_silent_node_is_not_evidence() {
    let conditions = silenced(&node("True", json!({})), now()).unwrap();
    assert_eq!(conditions.len(), 4);
    assert!(conditions.iter().all(|own| own.status == "Unknown"));
    assert_eq!(conditions[0].reason, "NodeStatusUnknown");
    assert_eq!(conditions[1].reason, "NodeStatusNeverUpdated");
    let silent = NodeView {
        conditions,
        ..NodeView::default()
    };
    assert_eq!(readiness(&silent), "Unknown");
    assert!(silenced(&silent, now()).is_none());
}

#[test]
fn pods_of_silent_nodes_alone_are_not_ready() {
    // A node whose kubelet posts `Ready: False`, or whose condition another has made unknown, speaks for its pods.
    for ready in ["True", "False", "Unknown"] {
        let node = node(ready, json!({}));
        assert!(!is_given_up_on(&node), "{ready}");
        let silent = silenced(&node, now()).map(|conditions| NodeView {
            conditions,
            ..NodeView::default()
        });
        let expected = (ready != "Unknown").then_some(true);
        assert_eq!(silent.as_ref().map(is_given_up_on), expected, "{ready}");
    }
    let never = NodeView {
        conditions: silenced(&NodeView::default(), now()).unwrap(),
        ..NodeView::default()
    };
    assert!(!is_given_up_on(&never));
}

#[test]
fn pods_that_have_ended_leave_too() {
    let pod = |phase: &str, deleted: Option<&str>| -> Object<PodView> {
        let metadata =
            json!({"name": "p", "namespace": "n", "uid": "u", "generation": 2, "deletionTimestamp": deleted});
        object_of(&json!({"metadata": metadata, "status": {"phase": phase}}).to_string()).unwrap()
    };
    for phase in ["Pending", "Running", "Succeeded", "Failed"] {
        assert!(leaves(&pod(phase, None)), "{phase}");
        assert!(!leaves(&pod(phase, Some("2026-01-01T01:00:00Z"))), "{phase}");
    }
    let condition = &marked(&pod("Running", None), now())["status"]["conditions"][0];
    assert_eq!(condition["reason"], "DeletionByTaintManager");
    assert_eq!(condition["observedGeneration"], 2);
}
