//! Upstream's table of statuses (`disruption_test.go`), in `testdata/disruption.json`: disruptions allowed, healthy pods, pods
//! that must be, pods that there are to be.

use super::plan::{Counts, PodRef, counts, fail_safe, plan};
use crate::views::{DisruptionBudgetView, PodView};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use machinery_client::Object;
use machinery_client::object::object_of;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const TABLE: &str = include_str!("../../testdata/disruption.json");

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    name: String,
    spec: Value,
    #[serde(default)]
    pods: Vec<String>,
    #[serde(default)]
    scale: i32,
    /// Pods that were to go, with the seconds from now.
    #[serde(default)]
    disrupted: BTreeMap<String, i64>,
    #[serde(default)]
    left: BTreeMap<String, i64>,
    #[serde(default)]
    not_deleted: Vec<String>,
    recheck: Option<i64>,
    status: [i32; 4],
}

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn at(seconds: &i64) -> Timestamp {
    now() + SignedDuration::from_secs(*seconds)
}

fn pod(index: usize, state: &str) -> PodRef {
    let name = format!("p{index}");
    let ready = if state == "not ready" { "False" } else { "True" };
    let mut pod = json!({"metadata": {"name": name, "namespace": "n", "uid": name},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
    if state == "deleting" {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T01:00:00Z");
    }
    Arc::new(object_of::<PodView>(&pod.to_string()).unwrap())
}

fn budget(spec: &Value, status: &Value) -> Object<DisruptionBudgetView> {
    let metadata = json!({"name": "b", "namespace": "n", "uid": "b", "generation": 3});
    let budget = json!({"metadata": metadata, "spec": spec, "status": status});
    object_of(&budget.to_string()).unwrap()
}

fn condition(conditions: Option<&Vec<Condition>>) -> &Condition {
    let mut all = conditions.unwrap().iter();
    all.find(|own| own.type_ == "DisruptionAllowed").unwrap()
}

#[test]
fn budget_statuses_are_upstreams() {
    let cases: Vec<Case> = serde_json::from_str(TABLE).unwrap();
    assert_eq!(cases.len(), 17);
    for case in cases {
        let name = &case.name;
        let disrupted: BTreeMap<_, _> = case
            .disrupted
            .iter()
            .map(|(pod, from)| (pod, at(from).to_string()))
            .collect();
        let budget = budget(&case.spec, &json!({"disruptedPods": disrupted}));
        let pods: Vec<_> = case
            .pods
            .iter()
            .enumerate()
            .map(|(index, state)| pod(index, state))
            .collect();
        let plan = plan(&budget, &pods, counts(&budget, pods.len(), case.scale), now());
        let status = &plan.status;
        let found = [
            status.disruptions_allowed,
            status.current_healthy,
            status.desired_healthy,
            status.expected_pods,
        ]
        .map(Option::unwrap);
        assert_eq!(found, case.status, "{name}");
        let left: BTreeMap<_, _> = status
            .disrupted_pods
            .iter()
            .flatten()
            .map(|(pod, since)| (pod.clone(), since.0))
            .collect();
        let wanted: BTreeMap<_, _> = case
            .left
            .iter()
            .map(|(pod, from)| (pod.clone(), at(from)))
            .collect();
        assert_eq!(left, wanted, "{name}");
        let gone: Vec<_> = plan.not_deleted.iter().map(|pod| pod.name()).collect();
        assert_eq!(gone, case.not_deleted, "{name}");
        assert_eq!(plan.recheck_at, case.recheck.as_ref().map(at), "{name}");
        assert_eq!(status.observed_generation, Some(3), "{name}");
        let condition = condition(status.conditions.as_ref());
        let expected = if found[0] > 0 {
            ("True", "SufficientPods")
        } else {
            ("False", "InsufficientPods")
        };
        assert_eq!((&*condition.status, &*condition.reason), expected, "{name}");
        assert_eq!(condition.observed_generation, Some(3), "{name}");
    }
}

/// TestKeepExistingPDBConditionDuringSync, and the time of a condition that stays as it is.
#[test]
fn budget_conditions_of_others_stay() {
    let since = "2025-01-01T00:00:00Z";
    let conditions = json!([
        {"type": "ExistingTestCondition", "status": "True", "reason": "Test", "message": "m", "lastTransitionTime": since},
        {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "m", "lastTransitionTime": since},
    ]);
    let budget = budget(&json!({"minAvailable": 3}), &json!({"conditions": conditions}));
    let none = Counts {
        expected: 0,
        desired: 3,
    };
    let status = plan(&budget, &[], none, now()).status;
    assert_eq!(status.conditions.as_ref().map(Vec::len), Some(2));
    let condition = condition(status.conditions.as_ref());
    assert_eq!(
        (&*condition.reason, &*condition.message),
        ("InsufficientPods", "")
    );
    assert_eq!(condition.last_transition_time.0, since.parse().unwrap());
}

#[test]
fn budget_that_cannot_be_counted_allows_nothing() {
    let old = json!({"disruptionsAllowed": 2, "currentHealthy": 3, "observedGeneration": 2,
        "disruptedPods": {"a": "2026-01-01T01:00:00Z"}});
    let status = fail_safe(
        &budget(&json!({"maxUnavailable": 1}), &old),
        "found no controllers",
        now(),
    );
    assert_eq!(
        (status.disruptions_allowed, status.current_healthy),
        (Some(0), Some(3))
    );
    assert_eq!(status.disrupted_pods.as_ref().map(BTreeMap::len), Some(1));
    let condition = condition(status.conditions.as_ref());
    assert_eq!(
        (&*condition.reason, &*condition.message),
        ("SyncFailed", "found no controllers")
    );
    assert_eq!(condition.observed_generation, Some(2));
}

/// TestStalePodDisruption: what a pod's view says of its disruption.
#[test]
fn pod_disruption_is_stale_only_while_it_may_be_undone() {
    let since = "2026-01-01T00:00:00Z";
    let of = |phase: &str, status: &str, reason: &str| {
        let condition = json!({"type": "DisruptionTarget", "status": status, "reason": reason, "lastTransitionTime": since});
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "p"},
            "status": {"phase": phase, "conditions": [condition]}});
        object_of::<PodView>(&pod.to_string()).unwrap().disrupted_since
    };
    assert_eq!(
        of("Running", "True", "EvictionByEvictionAPI"),
        Some(since.parse().unwrap())
    );
    assert_eq!(of("Running", "False", ""), None);
    assert_eq!(of("Running", "True", "TerminationByKubelet"), None);
    assert_eq!(of("Failed", "True", "DeletionByTaintManager"), None);
}

#[test]
fn selectors_are_shown_as_go_prints_them() {
    let selector = json!({"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": [
        {"key": "k", "operator": "In", "values": ["x", "y"]}, {"key": "l", "operator": "Exists"}]});
    let shown = super::reconcile::go_text(&serde_json::from_value(selector).unwrap());
    assert_eq!(
        shown,
        "&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},MatchExpressions:[]LabelSelectorRequirement{\
         LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},LabelSelectorRequirement{Key:l,Operator:Exists,Values:[],},},}"
    );
}
