//! Tables for the removed pods, their order, and what is written of them before.

use super::{failed, is_out_of_service, removal_order};
use crate::views::{NodeView, PodView};
use machinery_client::object::object_of;
use machinery_client::{Object, Projection};
use machinery_meta::ObjectHeader;
use serde::Deserialize;
use serde_json::{Value, json};

fn pod(name: &str, created: &str, status: Value) -> Object<PodView> {
    let metadata = json!({"name": name, "namespace": "n", "uid": name, "generation": 3,
        "creationTimestamp": format!("2026-01-01T00:{created}:00Z")});
    object_of(&json!({"metadata": metadata, "status": status}).to_string()).unwrap()
}

/// Nodes of upstream's `TestGCTerminating`: with the taint or without, and ready or not.
#[derive(Deserialize)]
struct Row {
    taints: Vec<String>,
    ready: Option<String>,
    out: bool,
}

#[test]
fn nodes_out_of_service_are_tainted_and_not_ready() {
    let rows: Vec<Row> = serde_json::from_str(include_str!("../../testdata/out_of_service.json")).unwrap();
    for row in rows {
        let taint = |key: &String| json!({"key": key, "effect": "NoExecute"});
        let taints: Vec<Value> = row.taints.iter().map(taint).collect();
        let ready = row
            .ready
            .iter()
            .map(|status| json!({"type": "Ready", "status": status}));
        let ready: Vec<Value> = ready.collect();
        let node = json!({"spec": {"taints": taints}, "status": {"conditions": ready}});
        let view = NodeView::project(&ObjectHeader::default(), node.to_string().as_bytes()).unwrap();
        assert_eq!(is_out_of_service(&view), row.out, "{node}");
    }
}

#[test]
fn evicted_pods_go_before_older_ones() {
    let evicted = json!({"phase": "Failed", "reason": "Evicted"});
    let mut pods = [
        pod("c", "01", json!({"phase": "Failed"})),
        pod("b", "01", json!({"phase": "Succeeded"})),
        pod("a", "02", json!({"phase": "Failed"})),
        pod("e", "04", evicted.clone()),
        pod("d", "03", evicted),
        // Not one that has failed.
        pod("f", "05", json!({"phase": "Succeeded", "reason": "Evicted"})),
    ];
    pods.sort_by_key(removal_order);
    let names: Vec<&str> = pods.iter().map(|pod| pod.name()).collect();
    assert_eq!(names, ["d", "e", "b", "c", "a", "f"]);
}

#[test]
fn pods_have_failed_before_they_go() {
    for (phase, said) in [
        ("Pending", true),
        ("Running", true),
        ("Unknown", true),
        ("Succeeded", false),
        ("Failed", false),
    ] {
        let body = failed(&pod("a", "00", json!({"phase": phase})), None);
        let expected = json!({"metadata": {"uid": "a"},
            "status": {"phase": "Failed", "observedGeneration": 3}});
        assert_eq!(body, said.then_some(expected), "{phase}");
    }
    let condition = json!({"type": "DisruptionTarget"});
    let body = failed(
        &pod("a", "00", json!({"phase": "Running"})),
        Some(condition.clone()),
    )
    .unwrap();
    assert_eq!(body["status"]["conditions"], json!([condition]));
}
