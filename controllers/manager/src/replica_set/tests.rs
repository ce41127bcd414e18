//! Tables for claiming, scaling and ranking.

use super::plan::{PodRef, Snapshot, plan};
use crate::views::{PodView, ReplicaSetView};
use jiff::Timestamp;
use machinery_client::object::object_of;
use serde_json::{Value, json};
use std::sync::Arc;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn set(replicas: i32) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "n", "uid": "set"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}}},
    })
}

fn pod(name: &str, owner: Option<&str>, change: Value) -> PodRef {
    let owners: Vec<_> = owner
        .iter()
        .map(|uid| json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid, "controller": true}))
        .collect();
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "labels": {"app": "web"}, "ownerReferences": owners,
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    });
    merge(&mut pod, &change);
    Arc::new(object_of::<PodView>(&pod.to_string()).unwrap())
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

fn snapshot(set: &Value, pods: Vec<PodRef>) -> Snapshot<ReplicaSetView> {
    let (owned, orphans): (Vec<_>, Vec<_>) = pods
        .into_iter()
        .partition(|pod| pod.header.controller().is_some());
    let set = Arc::new(object_of::<ReplicaSetView>(&set.to_string()).unwrap());
    Snapshot {
        set,
        siblings: owned.clone(),
        owned,
        orphans,
        settled: true,
        now: now(),
    }
}

#[track_caller]
fn check(set: &Value, pods: Vec<PodRef>, create: usize, delete: &[&str], adopt: &[&str], release: &[&str]) {
    let plan = plan(&snapshot(set, pods));
    let names = |pods: &[PodRef]| pods.iter().map(|pod| pod.name().to_owned()).collect::<Vec<_>>();
    assert_eq!(plan.create, create, "create");
    assert_eq!(names(&plan.delete), delete, "delete");
    assert_eq!(names(&plan.adopt), adopt, "adopt");
    assert_eq!(names(&plan.release), release, "release");
}

#[test]
fn counts() {
    let own = |name| pod(name, Some("set"), json!({}));
    check(&set(2), vec![], 2, &[], &[], &[]);
    check(&set(2), vec![own("a"), own("b")], 0, &[], &[], &[]);
    check(
        &set(1),
        vec![
            own("a"),
            pod("b", Some("set"), json!({"status": {"phase": "Failed"}})),
        ],
        0,
        &[],
        &[],
        &[],
    );
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T01:00:00Z"}});
    check(
        &set(1),
        vec![pod("a", Some("set"), going.clone())],
        1,
        &[],
        &[],
        &[],
    );
    let mut deleted = set(2);
    merge(&mut deleted, &going);
    check(&deleted, vec![own("a")], 0, &[], &[], &[]);
    check(&set(10_000), vec![], 500, &[], &[], &[]);
}

#[test]
fn claims() {
    let other = json!({"metadata": {"labels": {"app": "other"}}});
    check(&set(1), vec![pod("a", None, json!({}))], 0, &[], &["a"], &[]);
    check(&set(1), vec![pod("a", None, other.clone())], 1, &[], &[], &[]);
    check(&set(1), vec![pod("a", Some("set"), other)], 1, &[], &[], &["a"]);
    check(
        &set(1),
        vec![pod("a", None, json!({})), pod("b", Some("set"), json!({}))],
        0,
        &["a"],
        &["a"],
        &[],
    );
}

#[test]
fn replica_set_waits_for_expectations_before_scaling() {
    let mut snapshot = snapshot(&set(3), vec![]);
    snapshot.settled = false;
    assert_eq!(plan(&snapshot).create, 0);
}

#[test]
fn ranking() {
    let own = |name, change| pod(name, Some("set"), change);
    let cases = [
        ("unassigned", json!({"spec": {"nodeName": ""}})),
        ("pending", json!({"status": {"phase": "Pending"}})),
        ("unready", json!({"status": {"conditions": []}})),
        (
            "cheap",
            json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1"}}}),
        ),
        ("crowded", json!({"spec": {"nodeName": "n2"}})),
        (
            "just-ready",
            json!({"status": {"conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:59:59Z"}]}}),
        ),
        (
            "restarted",
            json!({"status": {"containerStatuses": [{"name": "c", "restartCount": 9}]}}),
        ),
        (
            "new",
            json!({"metadata": {"creationTimestamp": "2026-01-01T00:59:59Z"}}),
        ),
    ];
    for (name, change) in cases {
        let mut pods = vec![own("plain", json!({})), own(name, change)];
        if name == "crowded" {
            pods.push(own(
                "neighbour",
                json!({"spec": {"nodeName": "n2"},
                "metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "9"}}}),
            ));
        }
        let replicas = i32::try_from(pods.len()).unwrap() - 1;
        check(&set(replicas), pods, 0, &[name], &[], &[]);
    }
}
