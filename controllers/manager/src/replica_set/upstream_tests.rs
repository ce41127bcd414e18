//! Upstream's tables of ReplicaSets (1.37), in `testdata/replica_set.json`: `replica_set_test.go`,
//! `replica_set_utils_test.go` and the ranking in `controller_utils_test.go`.

use super::plan::{Plan, PodRef};
use super::ranking::{order, rank};
use super::status::{Failure, status};
use crate::views::{PodView, ReplicaSetView, ReplicationControllerView, SetView};
use jiff::Timestamp;
use machinery_client::object::object_of;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::cmp::Ordering;
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tables {
    /// The pods of `pods_to_delete`.
    pods: Vec<Value>,
    pods_to_delete: Vec<DeleteRow>,
    /// The pods of `order`.
    ranked: Vec<Value>,
    order: Vec<OrderRow>,
    status: Vec<StatusRow>,
}

#[derive(Deserialize)]
struct DeleteRow {
    name: String,
    pods: Vec<String>,
    /// Pods of the same owner; those of the set where it says nothing.
    related: Option<Vec<String>>,
    count: usize,
    delete: Vec<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OrderRow {
    Equal {
        equal: (String, String),
    },
    Before {
        before: (String, String),
        /// Pods of the same owner on the node of each.
        near: (usize, usize),
    },
}

#[derive(Deserialize)]
struct StatusRow {
    name: String,
    kind: Option<String>,
    set: SetFields,
    pods: Vec<Value>,
    #[serde(default)]
    terminating: i32,
    /// The error of making or deleting pods.
    fails: Option<String>,
    status: Option<Value>,
    conditions: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SetFields {
    replicas: i32,
    selector: Value,
    labels: Value,
    #[serde(default)]
    min_ready_seconds: i32,
    #[serde(default)]
    conditions: Vec<Value>,
}

fn tables() -> Tables {
    serde_json::from_str(include_str!("../../testdata/replica_set.json")).unwrap()
}

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn pod(json: &Value) -> PodRef {
    let mut json = json.clone();
    json["metadata"]["namespace"] = json!("default");
    Arc::new(object_of::<PodView>(&json.to_string()).unwrap())
}

fn named(all: &[Value], name: &str) -> PodRef {
    pod(all.iter().find(|pod| pod["metadata"]["name"] == name).unwrap())
}

#[test]
fn replica_set_deletes_the_pods_of_upstream() {
    let tables = tables();
    for row in tables.pods_to_delete {
        let of = |names: &[String]| -> Vec<PodRef> {
            names.iter().map(|name| named(&tables.pods, name)).collect()
        };
        let mut ranked = of(&row.pods);
        rank(&mut ranked, &of(row.related.as_ref().unwrap_or(&row.pods)), now());
        let mut seen: Vec<&str> = ranked.iter().take(row.count).map(|pod| pod.name()).collect();
        let mut expected: Vec<&str> = row.delete.iter().map(String::as_str).collect();
        if row.count == row.pods.len() {
            // All of them go, in whatever order.
            seen.sort_unstable();
            expected.sort_unstable();
        }
        assert_eq!(seen, expected, "{}", row.name);
    }
}

#[test]
fn replica_set_orders_pods_as_upstream() {
    let tables = tables();
    for row in &tables.order {
        let ((first, second), near, expected) = match row {
            OrderRow::Equal { equal } => (equal, (1, 1), Ordering::Equal),
            OrderRow::Before { before, near } => (before, *near, Ordering::Less),
        };
        let (a, b) = (named(&tables.ranked, first), named(&tables.ranked, second));
        let seen = order((&a, near.0), (&b, near.1), now());
        assert_eq!(seen, expected, "{first} and {second}, near {near:?}");
    }
}

fn set<P: SetView>(row: &StatusRow) -> machinery_client::Object<P> {
    let of = &row.set;
    let selector = match row.kind {
        Some(_) => of.selector.clone(),
        None => json!({"matchLabels": of.selector}),
    };
    let json = json!({"metadata": {"name": "foobar", "namespace": "default", "uid": "s"},
        "spec": {"replicas": of.replicas, "minReadySeconds": of.min_ready_seconds, "selector": selector,
            "template": {"metadata": {"labels": of.labels}, "spec": {"containers": []}}},
        "status": {"replicas": 0, "conditions": of.conditions}});
    object_of(&json.to_string()).unwrap()
}

fn seen<P: SetView>(row: &StatusRow) -> Map<String, Value> {
    let mut plan = Plan {
        active: row.pods.iter().map(pod).collect(),
        terminating: row.terminating,
        ..Plan::default()
    };
    plan.active
        .iter_mut()
        .for_each(|pod| assert!(crate::views::pod::is_active(pod)));
    let missing = i32::try_from(row.pods.len()).unwrap() < row.set.replicas;
    let failure = row.fails.as_ref().map(|message| Failure {
        reason: if missing { "FailedCreate" } else { "FailedDelete" },
        message: message.clone(),
    });
    let status = status(&set::<P>(row), &plan, failure.as_ref(), now());
    match serde_json::to_value(status).unwrap() {
        Value::Object(own) => own,
        other => panic!("{other}"),
    }
}

#[test]
fn replica_set_status_is_that_of_upstream() {
    for row in tables().status {
        let mut seen = match row.kind {
            Some(_) => seen::<ReplicationControllerView>(&row),
            None => seen::<ReplicaSetView>(&row),
        };
        if let Some(conditions) = &row.conditions {
            let mut own = seen.remove("conditions").unwrap_or_else(|| json!([]));
            for condition in own.as_array_mut().unwrap() {
                let condition = condition.as_object_mut().unwrap();
                condition.retain(|key, value| key != "lastTransitionTime" && *value != "");
            }
            assert_eq!(own, *conditions, "{}", row.name);
        }
        if let Some(expected) = &row.status {
            assert_eq!(json!(seen), *expected, "{}", row.name);
        }
    }
}
