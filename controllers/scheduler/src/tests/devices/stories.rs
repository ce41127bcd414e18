//! From a pod with claims of devices to its binding, and why it waits (upstream's `dynamicresources_test.go`).

use super::*;
use crate::devices::{Deallocation, DeviceReservation};
use crate::volumes::Reservation;
use machinery_meta::Revision;

/// Two nodes, each with a device of the driver, and a class of them.
pub(super) struct Story(pub(super) Scheduler);

const NOW: Duration = Duration::ZERO;

impl Story {
    pub(super) fn new() -> Self {
        let mut story = Self(Scheduler::default());
        for node in ["a", "b"] {
            let made = make_node(&json!({"name": node}));
            story.0.node_changed(node, Some(&made), NOW);
            story.slice(node, json!({}));
        }
        story.class(
            "c",
            json!({"selectors": [{"cel": {"expression": "device.driver == 'd'"}}]}),
        );
        story
    }

    pub(super) fn class(&mut self, name: &str, spec: Value) {
        let class = class_of(&json!({"metadata": {"name": name}, "spec": spec}));
        self.0.device_class_changed(name, Some(class), NOW);
    }

    /// The slice of a node, with one device.
    pub(super) fn slice(&mut self, node: &str, device: Value) {
        let mut own = json!({"name": "dev"});
        for (name, value) in device.as_object().unwrap() {
            own[name] = value.clone();
        }
        let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
        let spec = json!({"driver": "d", "pool": pool, "nodeName": node, "devices": [own]});
        let slice = slice_of(&json!({"metadata": {"name": node}, "spec": spec}));
        self.0.device_slice_changed(node, Some(slice), NOW);
    }

    /// A claim of one device, with more of what it is.
    pub(super) fn claim(&mut self, name: &str, version: u64, rest: &Value) {
        let exactly = json!({"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1});
        let mut object = json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"),
            "resourceVersion": version.to_string()},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}});
        for (part, value) in rest.as_object().unwrap() {
            for (name, value) in value.as_object().unwrap() {
                object[part][name] = value.clone();
            }
        }
        let key = ObjectKey::new("ns", name);
        self.0.device_claim_changed(&key, Some(claim_of(&object)), NOW);
    }

    pub(super) fn pod(&mut self, name: &str, claims: &[&str]) -> Arc<PodInfo> {
        let named = |claim: &&str| json!({"name": claim, "resourceClaimName": claim});
        self.pod_with(name, claims.iter().map(named).collect(), json!([]))
    }

    /// A pod that fits on one node alone.
    pub(super) fn pod_on(&mut self, name: &str, node: &str, claims: &[&str]) -> Arc<PodInfo> {
        let named = |claim: &&str| json!({"name": claim, "resourceClaimName": claim});
        let claims: Vec<Value> = claims.iter().map(named).collect();
        let here = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        let nodes = json!({"nodeSelectorTerms": [{"matchFields": [here]}]});
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": nodes}});
        self.any_pod(
            name,
            json!({"resourceClaims": claims, "affinity": affinity}),
            json!([]),
        )
    }

    pub(super) fn pod_with(&mut self, name: &str, claims: Vec<Value>, made: Value) -> Arc<PodInfo> {
        self.any_pod(name, json!({"resourceClaims": claims}), made)
    }

    pub(super) fn any_pod(&mut self, name: &str, mut spec: Value, made: Value) -> Arc<PodInfo> {
        spec["schedulerName"] = "default-scheduler".into();
        spec["containers"] = json!([{"name": "c"}]);
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name},
            "spec": spec,
            "status": {"resourceClaimStatuses": made}
        }))
        .unwrap();
        let pod = Arc::new(PodInfo::new(pod));
        self.0.pod_changed(&pod.key, Some(&pod), NOW);
        pod
    }

    #[track_caller]
    pub(super) fn reserved(&mut self, now: Duration) -> (Arc<PodInfo>, Box<str>, Reservation) {
        match self.0.decide(now, 0) {
            Some(Decision::Reserve {
                pod,
                node,
                reservation,
            }) => (pod, node, reservation),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub(super) fn went_wrong(&mut self, now: Duration) -> String {
        match self.0.decide(now, 0) {
            Some(Decision::Error { message, .. }) => message,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub(super) fn rejected(&mut self, now: Duration) -> (String, Option<Deallocation>) {
        match self.0.decide(now, 0) {
            Some(Decision::Reject {
                message,
                deallocation,
                ..
            }) => (message, deallocation),
            other => panic!("{other:?}"),
        }
    }
}

const LATER: Duration = Duration::from_secs(60);

pub(super) fn on(node: &str) -> Value {
    let here = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
    json!({"devices": {"results": [{"request": "r", "driver": "d", "pool": node, "device": "dev"}]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": here}]}})
}

pub(super) fn owned_by(pod: &str) -> Value {
    json!({"metadata": {"ownerReferences": [{"kind": "Pod", "name": pod, "uid": pod, "controller": true}]}})
}

pub(super) fn written(mut reservation: Reservation, version: u64) -> Reservation {
    for own in &mut reservation.devices {
        own.written = Some(Revision(version));
    }
    reservation
}

/// The API server writes the requests of `spec: {}` as null, as upstream's does.
#[test]
fn pod_with_a_claim_without_requests_is_placed() {
    let mut story = Story::new();
    story.claim("empty", 1, &json!({"spec": {"devices": {"requests": null}}}));
    let pod = story.pod("p", &["empty"]);
    let (placed, ..) = story.reserved(NOW);
    assert_eq!(placed.key, pod.key);
}

#[test]
fn claim_gets_devices_of_the_pods_node_and_the_pod_is_bound_once_that_is_written() {
    let mut story = Story::new();
    story.claim("x", 1, &json!({}));
    let pod = story.pod("p", &["x"]);
    let (_, node, reservation) = story.reserved(NOW);
    let [own] = &reservation.devices[..] else {
        panic!("{reservation:?}");
    };
    let DeviceReservation {
        claim,
        uid,
        allocation,
        ..
    } = own;
    assert_eq!((claim, &**uid), (&ObjectKey::new("ns", "x"), "uid-x"));
    assert_eq!(*allocation, Some(on(&node)));
    // Nothing is bound before the claim is written.
    assert!(story.0.decide_burst(NOW, 9, || 0).is_empty());
    story.0.volumes_written(&pod, &node, written(reservation, 2), NOW);
    let decided = story.0.decide_burst(NOW, 9, || 0);
    assert!(
        matches!(&decided[..], [Decision::Bind { node: own, .. }] if *own == node),
        "{decided:?}"
    );
}

#[test]
fn device_is_given_to_one_claim_and_the_next_waits_until_it_is_free() {
    let mut story = Story::new();
    story.0.device_slice_changed("b", None, NOW);
    story.claim("x", 1, &json!({}));
    story.claim("y", 1, &json!({}));
    let first = story.pod("p", &["x"]);
    let (_, node, reservation) = story.reserved(NOW);
    assert_eq!(&*node, "a");
    // It is assumed: no version of the claim says so yet.
    story.pod("q", &["y"]);
    let (message, _) = story.rejected(NOW);
    assert_eq!(
        message,
        "0/2 nodes are available: 2 cannot allocate all claims. preemption: 0/2 nodes are available: 2 Preemption \
         is not helpful for scheduling."
    );
    story
        .0
        .volumes_written(&first, &node, written(reservation, 2), NOW);
    let status = json!({"status": {"allocation": on("a"), "reservedFor": [{"uid": "p"}]}});
    story.claim("x", 2, &status);
    assert!(matches!(
        story.0.decide(NOW, 0),
        Some(Decision::Bind { .. }) | None
    ));
    assert!(!story.0.queue.has_next(LATER), "nothing is free");
    story.claim("x", 3, &json!({}));
    let (pod, node, _) = story.reserved(LATER);
    assert_eq!((&*pod.key.name, &*node), ("q", "a"));
}

#[test]
fn devices_that_were_not_written_are_free_again() {
    let mut story = Story::new();
    story.0.device_slice_changed("b", None, NOW);
    story.claim("x", 1, &json!({}));
    story.claim("y", 1, &json!({}));
    let pod = story.pod("p", &["x"]);
    let (_, _, reservation) = story.reserved(NOW);
    story.0.volumes_not_written(&pod, &reservation, NOW);
    story.pod("q", &["y"]);
    let (pod, node, _) = story.reserved(NOW);
    assert_eq!((&*pod.key.name, &*node), ("q", "a"));
}

#[test]
fn claim_that_is_being_allocated_holds_up_its_other_pods() {
    let mut story = Story::new();
    story.claim("x", 1, &json!({}));
    story.pod("p", &["x"]);
    let _ = story.reserved(NOW);
    story.pod("q", &["x"]);
    let (message, _) = story.rejected(NOW);
    let expected = "0/2 nodes are available: resource claim ns/x is in the process of being allocated.";
    assert!(message.starts_with(expected), "{message}");
}

#[test]
fn pod_waits_for_claims_that_are_not_there() {
    let mut story = Story::new();
    let template = json!({"name": "r", "resourceClaimTemplateName": "t"});
    story.pod("p", &["x"]);
    story.pod_with("q", vec![template.clone()], json!([]));
    assert!(!story.0.has_work(LATER), "both are held back");
    story.claim("x", 1, &json!({}));
    let (pod, ..) = story.reserved(NOW);
    assert_eq!(&*pod.key.name, "p");
    // Its name comes with the pod, the claim itself later.
    let made = json!([{"name": "r", "resourceClaimName": "q-r"}]);
    story.pod_with("q", vec![template], made);
    assert!(!story.0.has_work(LATER));
    story.claim("q-r", 1, &owned_by("another"));
    assert!(!story.0.has_work(LATER), "it was made for another pod");
    story.claim("q-r", 2, &owned_by("q"));
    let (pod, ..) = story.reserved(NOW);
    assert_eq!(&*pod.key.name, "q");
}

#[test]
fn pod_without_need_of_its_claim_is_bound_at_once() {
    let mut story = Story::new();
    let template = json!({"name": "r", "resourceClaimTemplateName": "t"});
    story.pod_with("p", vec![template], json!([{"name": "r"}]));
    assert!(matches!(story.0.decide(NOW, 0), Some(Decision::Bind { .. })));
}

#[test]
fn claims_are_refused_in_upstreams_words() {
    let refused = |arrange: &dyn Fn(&mut Story), expected: &str| {
        let mut story = Story::new();
        arrange(&mut story);
        story.pod("p", &["x"]);
        let (message, _) = story.rejected(NOW);
        let expected = format!("0/2 nodes are available: {expected}. ");
        assert!(message.starts_with(&expected), "{message}");
    };
    refused(
        &|story| {
            story.claim("x", 1, &json!({}));
            story.0.device_class_changed("c", None, NOW);
        },
        "request r: device class c does not exist",
    );
    let full: Vec<Value> = (0..256).map(|at| json!({"uid": format!("u-{at}")})).collect();
    refused(
        &|story| {
            let status = json!({"status": {"allocation": on("a"), "reservedFor": full}});
            story.claim("x", 1, &status);
        },
        "resourceclaim in use",
    );
    refused(
        &|story| {
            for node in ["a", "b"] {
                let taint = json!({"key": "k", "effect": "NoSchedule"});
                story.slice(node, json!({"taints": [taint]}));
            }
            story.claim("x", 1, &json!({}));
        },
        "2 cannot allocate all claims",
    );
}

#[test]
fn expression_that_fails_is_an_error_and_is_tried_again_after_backing_off() {
    let mut story = Story::new();
    let selector = json!({"cel": {"expression": "device.attributes['d'].x"}});
    story.class("c", json!({"selectors": [selector]}));
    story.claim("x", 1, &json!({}));
    let pod = story.pod("p", &["x"]);
    let message = story.went_wrong(NOW);
    assert_eq!(
        message,
        "running \"DynamicResources\" filter plugin: class c: selector #0 on device d/a/dev: CEL runtime error: no such \
         key: x. Consider using CEL optional chaining (?), has() macro, or orValue() for optional fields"
    );
    assert!(!story.0.queue.has_next(NOW));
    assert!(story.0.queue.has_next(LATER), "nothing has to happen");
    assert!(story.0.queue.contains(&pod.key));
}

#[test]
fn taint_rule_keeps_devices_back_until_it_goes() {
    let mut story = Story::new();
    let spec = json!({"deviceSelector": {"driver": "d"}, "taint": {"key": "k", "effect": "NoExecute"}});
    let rule = rule_of(&json!({"spec": spec}));
    story.0.device_rule_changed("t", Some(rule), NOW);
    story.claim("x", 1, &json!({}));
    story.pod("p", &["x"]);
    let (message, _) = story.rejected(NOW);
    assert!(message.contains("2 cannot allocate all claims"), "{message}");
    story.0.device_rule_changed("t", None, NOW);
    let _ = story.reserved(LATER);
}

#[test]
fn allocated_claim_draws_its_pods_to_its_node_and_reserves_for_each() {
    let mut story = Story::new();
    let status = json!({"status": {"allocation": on("b"), "reservedFor": [{"uid": "other"}]}});
    story.claim("x", 1, &status);
    story.pod("p", &["x"]);
    let (_, node, reservation) = story.reserved(NOW);
    assert_eq!(&*node, "b");
    assert_eq!(reservation.devices[0].allocation, None);
    // One that it is reserved for has nothing to write.
    let status = json!({"status": {"allocation": on("b"), "reservedFor": [{"uid": "q"}]}});
    story.claim("y", 1, &status);
    story.pod("q", &["y"]);
    assert!(matches!(story.0.decide(NOW, 0), Some(Decision::Bind { node, .. }) if &*node == "b"));
}

#[test]
fn claim_out_of_reach_gives_its_devices_back() {
    let mut story = Story::new();
    story.claim("x", 1, &json!({"status": {"allocation": on("gone")}}));
    story.pod("p", &["x"]);
    let (message, deallocation) = story.rejected(NOW);
    assert_eq!(
        message,
        "0/2 nodes are available: 2 resourceclaim not available on the node. deallocation of ResourceClaim completed, \
         preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    );
    let claim = ObjectKey::new("ns", "x");
    let uid = "uid-x".into();
    let revision = Revision(1);
    let expected = Deallocation {
        claim,
        uid,
        revision,
        deletes: false,
    };
    assert_eq!(deallocation, Some(expected));
    story.claim("x", 2, &json!({}));
    let _ = story.reserved(LATER);
    // What another pod has reserved stays.
    let status = json!({"status": {"allocation": on("gone"), "reservedFor": [{"uid": "other"}]}});
    story.claim("y", 1, &status);
    story.pod("q", &["y"]);
    assert_eq!(story.rejected(LATER).1, None);
}

#[test]
fn claim_that_is_being_reserved_keeps_its_devices() {
    let mut story = Story::new();
    story.claim("x", 1, &json!({"status": {"allocation": on("b")}}));
    let first = story.pod("p", &["x"]);
    let (_, node, reservation) = story.reserved(NOW);
    // The API says that no pod has reserved it.
    let second = story.pod_on("q", "a", &["x"]);
    assert_eq!(story.rejected(NOW).1, None);
    story.0.volumes_not_written(&first, &reservation, NOW);
    story.0.pod_changed(&first.key, None, NOW);
    story.0.pod_changed(&second.key, None, NOW);
    story.pod_on("r", "a", &["x"]);
    assert!(story.rejected(LATER).1.is_some(), "on {node}");
}

#[test]
fn devices_of_another_scheduler_are_taken_beside_those_that_are_assumed() {
    let mut story = Story::new();
    story.claim("x", 1, &json!({}));
    let first = story.pod("p", &["x"]);
    let (_, node, reservation) = story.reserved(NOW);
    let other = if &*node == "a" { "b" } else { "a" };
    story.claim("x", 2, &json!({"status": {"allocation": on(other)}}));
    story.claim("y", 1, &json!({}));
    story.pod("q", &["y"]);
    let (message, _) = story.rejected(NOW);
    assert!(message.contains("2 cannot allocate all claims"), "{message}");
    // The write fails: what was assumed is free, and wakes the pod that waits.
    story.0.volumes_not_written(&first, &reservation, NOW);
    story.0.pod_changed(&first.key, None, NOW);
    let (pod, free, _) = story.reserved(LATER);
    assert_eq!((&*pod.key.name, free), ("q", node));
}

#[test]
fn claim_that_is_assumed_keeps_its_devices_until_the_api_has_it() {
    let mut story = Story::new();
    story.0.device_slice_changed("b", None, NOW);
    story.claim("x", 1, &json!({}));
    let first = story.pod("p", &["x"]);
    let (_, node, reservation) = story.reserved(NOW);
    let has = written(reservation, 3);
    story.0.volumes_written(&first, &node, has, NOW);
    let key = ObjectKey::new("ns", "x");
    let known = story.0.nodes.devices.claim(&key).cloned().unwrap();
    assert!(known.status.get().is_reserved_for("p"), "{known:?}");
    let second = story.pod_on("q", "b", &["x"]);
    let _ = story.0.decide_burst(NOW, 1, || 0);
    assert_eq!(story.rejected(NOW).1, None);
    story.0.not_deallocated(&second, NOW);
    assert!(story.0.has_work(LATER), "it is tried again");
}

#[test]
fn node_with_the_better_alternative_is_chosen() {
    let mut story = Story::new();
    story.slice("b", json!({"attributes": {"fast": {"bool": true}}}));
    let alternative = |name: &str, expression: &str| {
        json!({"name": name, "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1,
            "selectors": [{"cel": {"expression": expression}}]})
    };
    let list = [
        alternative("fast", "device.attributes['d'].?fast.orValue(false)"),
        alternative("any", "true"),
    ];
    let spec = json!({"spec": {"devices": {"requests": [{"name": "r", "firstAvailable": list}]}}});
    story.claim("x", 1, &spec);
    story.pod("p", &["x"]);
    let (_, node, reservation) = story.reserved(NOW);
    assert_eq!(&*node, "b");
    let allocation = reservation.devices[0].allocation.as_ref().unwrap();
    assert_eq!(allocation["devices"]["results"][0]["request"], "r/fast");
}

#[test]
fn pod_waits_for_a_class_and_for_a_slice_that_completes_its_pool() {
    let mut story = Story::new();
    let half = json!({"metadata": {"name": "a"}, "spec": {"driver": "d", "nodeName": "a", "devices": [{"name": "dev"}],
        "pool": {"name": "a", "generation": 2, "resourceSliceCount": 2}}});
    story.0.device_slice_changed("a", Some(slice_of(&half)), NOW);
    story.0.device_slice_changed("b", None, NOW);
    story.claim("x", 1, &json!({}));
    story.pod("p", &["x"]);
    assert!(story.rejected(NOW).0.contains("2 cannot allocate all claims"));
    let mut other = half.clone();
    other["metadata"]["name"] = "a-2".into();
    other["spec"]["devices"] = json!([]);
    story.0.device_slice_changed("a-2", Some(slice_of(&other)), NOW);
    let (_, node, _) = story.reserved(LATER);
    assert_eq!(&*node, "a");
}

#[test]
fn search_for_devices_is_charged_and_bounded() {
    let mut story = Story::new();
    let device = |at: usize| json!({"name": format!("d-{at}")});
    let devices: Vec<Value> = (0..24).map(device).collect();
    for node in ["a", "b"] {
        let slice = json!({"metadata": {"name": node}, "spec": {"driver": "d", "nodeName": node, "devices": devices,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}});
        story.0.device_slice_changed(node, Some(slice_of(&slice)), NOW);
    }
    let request = |at: usize| json!({"name": format!("r-{at}"), "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}});
    let requests: Vec<Value> = (0..25).map(request).collect();
    story.claim("x", 1, &json!({"spec": {"devices": {"requests": requests}}}));
    story.pod("p", &["x"]);
    assert!(story.0.is_heavy_next(NOW), "it is decided on a thread of its own");
    assert_eq!(
        story.went_wrong(NOW),
        "running \"DynamicResources\" filter plugin: node a: timed out trying to allocate devices"
    );
    let steps = story.0.last_steps();
    assert!(
        steps > 1 << 20 && steps < 3 << 19,
        "{steps}: one node is looked at"
    );
    assert!(story.0.queue.has_next(LATER), "nothing has to happen");
}
