//! The end of pods by taints of their devices, and the words of rules (after upstream's `device_taint_eviction_test.go`).

use super::plan::{Eviction, Known, of_pod};
use super::status::{Counts, condition};
use super::view::{AllocationView, DevicesView, NO_EXECUTE, NONE, RuleView};
use crate::views::PodView;
use machinery_client::object::object_of;
use machinery_client::{Object, Projection};
use serde_json::{Value, json};
use std::sync::Arc;

const ADDED: &str = "2026-01-01T00:00:00Z";

fn object<P: Projection>(json: &Value) -> Arc<Object<P>> {
    Arc::new(object_of(&json.to_string()).unwrap())
}

fn taint(effect: &str) -> Value {
    json!({"key": "broken", "value": "yes", "effect": effect, "timeAdded": ADDED})
}

fn slice(generation: i64, taints: &Value) -> Value {
    json!({"metadata": {"name": format!("s{generation}"), "uid": "s"}, "spec": {"driver": "d",
        "pool": {"name": "p", "generation": generation}, "devices": [{"name": "one", "taints": taints}]}})
}

fn rule(selector: &Value, effect: &str) -> Value {
    json!({"metadata": {"name": "r", "uid": "rule"}, "spec": {"deviceSelector": selector, "taint": taint(effect)}})
}

/// A world of one pod with one claim of one device.
struct World {
    pod: Value,
    claim: Value,
    slices: Vec<Value>,
    rules: Vec<Value>,
}

impl World {
    fn new() -> Self {
        Self {
            pod: json!({"metadata": {"name": "pod", "namespace": "ns", "uid": "pod"},
                "spec": {"nodeName": "n", "resourceClaims": [{"name": "c", "resourceClaimName": "claim"}]}}),
            claim: json!({"metadata": {"name": "claim", "namespace": "ns", "uid": "claim"}, "status": {
                "allocation": {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "one"}]}},
                "reservedFor": [{"resource": "pods", "name": "pod", "uid": "pod"}]}}),
            slices: vec![slice(1, &json!([taint(NO_EXECUTE)]))],
            rules: Vec::new(),
        }
    }

    fn tolerates(mut self, toleration: Value) -> Self {
        self.claim["status"]["allocation"]["devices"]["results"][0]["tolerations"] = toleration;
        self
    }

    fn eviction(&self) -> Option<Eviction> {
        let claim: Arc<Object<AllocationView>> = object(&self.claim);
        let slices: Vec<Arc<Object<DevicesView>>> = self.slices.iter().map(object).collect();
        let rules: Vec<Arc<Object<RuleView>>> = self.rules.iter().map(object).collect();
        let known = Known {
            claims: &|key| (key == claim.key()).then(|| Arc::clone(&claim)),
            slices: &|pool| if pool == "d/p" { slices.clone() } else { Vec::new() },
            rules: &rules,
        };
        of_pod(&object::<PodView>(&self.pod), known)
    }

    /// Seconds from the taint to the pod's end.
    fn seconds(&self) -> Option<i64> {
        let added: jiff::Timestamp = ADDED.parse().unwrap();
        self.eviction()
            .map(|own| own.when.duration_since(added).as_secs())
    }
}

#[test]
fn device_taint_ends_the_pods_of_its_claims() {
    assert_eq!(World::new().seconds(), Some(0));
    let mut other_effect = World::new();
    other_effect.slices = vec![slice(1, &json!([taint("NoSchedule"), taint(NONE)]))];
    assert_eq!(other_effect.seconds(), None);
    let mut outdated = World::new();
    outdated.slices.push(slice(2, &json!([])));
    assert_eq!(outdated.seconds(), None);
    let mut waits = World::new();
    waits.pod["spec"]["nodeName"] = "".into();
    assert_eq!(waits.seconds(), None);
    let mut of_another = World::new();
    of_another.claim["status"]["reservedFor"][0]["uid"] = "other".into();
    assert_eq!(of_another.seconds(), None);
    let mut not_allocated = World::new();
    not_allocated.claim["status"] = json!({});
    assert_eq!(not_allocated.seconds(), None);
}

#[test]
fn device_taint_ends_no_pod_of_a_claim_that_was_made_for_another() {
    let mut made = World::new();
    made.pod["spec"]["resourceClaims"] = json!([{"name": "c", "resourceClaimTemplateName": "t"}]);
    made.pod["status"] = json!({"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "claim"}]});
    assert_eq!(made.seconds(), None);
    let owner = |uid: &str| json!([{"apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": uid, "controller": true}]);
    made.claim["metadata"]["ownerReferences"] = owner("other");
    assert_eq!(made.seconds(), None);
    made.claim["metadata"]["ownerReferences"] = owner("pod");
    assert_eq!(made.seconds(), Some(0));
}

#[test]
fn device_taint_of_a_slice_of_another_node_counts_for_its_own_pods_alone() {
    let (own, evil) = (Some("n"), Some("evil"));
    let (clean, tainted) = (json!([]), json!([taint(NO_EXECUTE)]));
    let seconds = |slices: [(i64, Option<&str>, &Value); 2]| {
        let mut world = World::new();
        let of_node = |(generation, node, taints): (i64, Option<&str>, &Value)| {
            let mut own = slice(generation, taints);
            if let Some(node) = node {
                own["spec"]["nodeName"] = json!(node);
            }
            own
        };
        world.slices = slices.into_iter().map(of_node).collect();
        world.seconds()
    };
    let found = [
        seconds([(1, own, &clean), (9, evil, &tainted)]),
        seconds([(1, own, &clean), (1, evil, &tainted)]),
        seconds([(1, own, &tainted), (9, evil, &clean)]),
        // Of the node itself, and of no single node, the newest counts.
        seconds([(1, own, &tainted), (9, own, &clean)]),
        seconds([(1, own, &tainted), (9, None, &clean)]),
    ];
    assert_eq!(found, [None, None, Some(0), None, None]);
}

#[test]
fn device_taint_is_tolerated_for_the_shortest_time() {
    let check = |tolerations: Value, expected: Option<i64>| {
        let seconds = World::new().tolerates(tolerations.clone()).seconds();
        assert_eq!(seconds, expected, "{tolerations}");
    };
    let exists = |seconds: Value| json!({"key": "broken", "operator": "Exists", "effect": NO_EXECUTE, "tolerationSeconds": seconds});
    check(json!([exists(json!(null))]), None);
    check(json!([exists(json!(60))]), Some(60));
    check(json!([exists(json!(60)), exists(json!(30))]), Some(30));
    check(json!([exists(json!(-5))]), Some(0));
    check(json!([{"operator": "Exists", "effect": NO_EXECUTE}]), None);
    check(
        json!([{"key": "broken", "value": "yes", "effect": NO_EXECUTE}]),
        None,
    );
    check(
        json!([{"key": "broken", "value": "no", "effect": NO_EXECUTE}]),
        Some(0),
    );
    // One of every effect is none of the end of pods, as upstream has it.
    check(json!([{"operator": "Exists"}]), Some(0));
    check(json!([{"operator": "Exists", "effect": "NoSchedule"}]), Some(0));
}

#[test]
fn device_taint_rule_selects_devices() {
    let evicts = |selector: Value| {
        let mut world = World::new();
        world.slices.clear();
        world.rules = vec![rule(&selector, NO_EXECUTE)];
        let eviction = world.eviction();
        assert!(
            eviction
                .iter()
                .all(|own| own.rules.iter().any(|uid| uid.0 == "rule"))
        );
        eviction.is_some()
    };
    assert!(evicts(json!({})));
    assert!(evicts(json!({"driver": "d", "pool": "p", "device": "one"})));
    assert!(!evicts(json!({"driver": "d", "pool": "p", "device": "two"})));
    assert!(!evicts(json!({"driver": "other"})));
    assert!(!evicts(json!(null)));
}

#[track_caller]
fn check(effect: &str, counts: Counts, expected: (&str, &str, &str)) {
    let own = condition(effect, 3, counts);
    assert_eq!((&*own.status, &*own.reason, &*own.message), expected);
    assert_eq!(own.observed_generation, 3);
}

#[test]
fn device_taint_rule_says_how_far_it_is() {
    let counts = Counts::default();
    check(NO_EXECUTE, counts, ("False", "NotStarted", ""));
    let one = Counts {
        pending_pods: 1,
        pending_namespaces: 1,
        ..counts
    };
    check(
        NO_EXECUTE,
        one,
        (
            "True",
            "PodsPendingEviction",
            "1 pod needs to be evicted in 1 namespace.",
        ),
    );
    let some = Counts {
        pending_pods: 3,
        pending_namespaces: 2,
        evicted: 1,
        ..counts
    };
    check(
        NO_EXECUTE,
        some,
        (
            "True",
            "PodsPendingEviction",
            "3 pods need to be evicted in 2 different namespaces. 1 pod evicted since starting the controller.",
        ),
    );
    let done = Counts { evicted: 2, ..counts };
    check(
        NO_EXECUTE,
        done,
        (
            "False",
            "Completed",
            "2 pods evicted since starting the controller.",
        ),
    );
    let tried_out = Counts {
        published: 1,
        allocated: 2,
        ..one
    };
    check(
        NONE,
        tried_out,
        (
            "False",
            "NoEffect",
            "1 published device selected. 2 allocated devices selected. 1 pod would be evicted in 1 namespace if the effect was \
             NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.",
        ),
    );
    check(
        "NoSchedule",
        counts,
        (
            "False",
            "OtherEffect",
            "Eviction only happens for the NoExecute effect.",
        ),
    );
}
