//! Tables for rolling, scaling in proportion, recreating and cleaning up.

use super::plan::{Plan, plan};
use super::snapshot::Snapshot;
use crate::views::{DeploymentView, ReplicaSetView};
use machinery_client::object::object_of;
use serde_json::{Value, json};
use std::sync::Arc;

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

fn deployment(replicas: i32, spec: Value) -> Value {
    let mut out = json!({
        "metadata": {"name": "web", "namespace": "n", "uid": "d", "generation": 1},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template("new"),
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}},
    });
    for (key, value) in spec.as_object().unwrap() {
        out["spec"][key] = value.clone();
    }
    out
}

/// A set by image, size, available pods, and the size it was scaled for.
fn set(image: &str, replicas: i32, available: i32, desired: i32) -> Value {
    json!({
        "metadata": {"name": image, "namespace": "n", "uid": image,
            "creationTimestamp": if image == "new" { "2026-01-02T00:00:00Z" } else { "2026-01-01T00:00:00Z" },
            "annotations": {"deployment.kubernetes.io/desired-replicas": desired.to_string(),
                "deployment.kubernetes.io/max-replicas": (desired + 1).to_string()}},
        "spec": {"replicas": replicas, "selector": {}, "template": template(image)},
        "status": {"replicas": replicas, "availableReplicas": available},
    })
}

fn round(deployment: &Value, sets: &[Value], old_pods_running: bool) -> Plan {
    let sets = sets
        .iter()
        .map(|set| Arc::new(object_of::<ReplicaSetView>(&set.to_string()).unwrap()));
    let deployment = Arc::new(object_of::<DeploymentView>(&deployment.to_string()).unwrap());
    plan(&Snapshot {
        deployment,
        sets: sets.collect(),
        old_pods_running,
    })
}

#[track_caller]
fn check(deployment: &Value, sets: &[Value], create: Option<i32>, scale: &[(&str, i32)]) {
    let plan = round(deployment, sets, false);
    let got: Vec<_> = plan
        .scale
        .iter()
        .map(|step| (step.set.name().to_owned(), step.to))
        .collect();
    let expected: Vec<_> = scale.iter().map(|(name, to)| ((*name).to_owned(), *to)).collect();
    assert_eq!((plan.create_new, got), (create, expected));
}

#[test]
fn rolling() {
    let three = deployment(3, json!({}));
    check(&three, &[], Some(3), &[]);
    check(&three, &[set("old", 3, 3, 3)], Some(1), &[]);
    check(&three, &[set("old", 3, 3, 3), set("new", 1, 0, 3)], None, &[]);
    check(
        &three,
        &[set("old", 3, 3, 3), set("new", 1, 1, 3)],
        None,
        &[("old", 2)],
    );
    check(
        &three,
        &[set("old", 2, 2, 3), set("new", 1, 1, 3)],
        None,
        &[("new", 2)],
    );
    check(&three, &[set("old", 0, 0, 3), set("new", 3, 3, 3)], None, &[]);
    // The old set's status is of before it was scaled down: what it counts beyond the size makes no room.
    let loose = json!({"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}});
    check(
        &deployment(3, loose),
        &[set("old", 3, 4, 3), set("new", 1, 1, 3)],
        None,
        &[("old", 1)],
    );
    // The new set shrank and grew again, and counts pods of before that: nothing is built on them.
    let loose = json!({"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}});
    let mut late = set("new", 3, 2, 3);
    late["metadata"]["generation"] = json!(4);
    late["status"]["observedGeneration"] = json!(3);
    let old = set("old", 1, 1, 3);
    check(
        &deployment(3, loose.clone()),
        &[old.clone(), late.clone()],
        None,
        &[],
    );
    late["status"]["observedGeneration"] = json!(4);
    check(&deployment(3, loose), &[old, late], None, &[("old", 0)]);
    // Pods of an old set that are not available go first, and free room.
    check(
        &three,
        &[set("old", 3, 1, 3), set("new", 1, 1, 3)],
        None,
        &[("old", 2)],
    );
    let bounds = json!({"strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}});
    check(
        &deployment(10, bounds.clone()),
        &[set("old", 10, 10, 10)],
        Some(3),
        &[],
    );
    check(
        &deployment(10, bounds),
        &[set("old", 10, 10, 10), set("new", 3, 0, 10)],
        None,
        &[("old", 8)],
    );
}

#[test]
fn recreating() {
    let two = deployment(2, json!({"strategy": {"type": "Recreate"}}));
    check(&two, &[set("old", 2, 2, 2)], None, &[("old", 0)]);
    assert_eq!(round(&two, &[set("old", 0, 0, 2)], true).create_new, None);
    check(&two, &[set("old", 0, 0, 2)], Some(2), &[]);
}

#[test]
fn scaling_in_the_middle_of_a_rollout_keeps_the_proportions() {
    let ten = deployment(10, json!({}));
    check(&ten, &[set("new", 5, 5, 5)], None, &[("new", 10)]);
    // It has the new size already, and is to say that it was scaled for it.
    check(&ten, &[set("new", 10, 10, 12)], None, &[("new", 10)]);
    check(&ten, &[set("new", 10, 10, 10)], None, &[]);
    check(
        &ten,
        &[set("old", 4, 4, 5), set("new", 2, 2, 5)],
        None,
        &[("old", 7), ("new", 4)],
    );
    let paused = deployment(10, json!({"paused": true}));
    check(&paused, &[set("old", 10, 10, 10)], None, &[]);
    check(&paused, &[set("old", 5, 5, 5)], None, &[("old", 10)]);
}

#[test]
fn history_is_bounded() {
    let mut one = deployment(1, json!({"revisionHistoryLimit": 0}));
    one["status"] =
        json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1});
    let plan = round(&one, &[set("old", 0, 0, 1), set("new", 1, 1, 1)], false);
    assert_eq!(
        plan.delete.iter().map(|set| set.name()).collect::<Vec<_>>(),
        ["old"]
    );
}
