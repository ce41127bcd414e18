//! Pods that wait for conditions of their devices before they are bound.

use super::stories::{Story, on, written};
use super::*;
use crate::config::Configuration;
use crate::devices::conditions::Readiness;
use crate::volumes::Reservation;
use jiff::Timestamp;
use serde::Deserialize;

const NOW: Duration = Duration::ZERO;
const LATER: Duration = Duration::from_secs(60);
/// The wall's time at [`NOW`].
const WALL: &str = "2026-01-02T03:04:05Z";

fn wall(seconds: i64) -> Timestamp {
    let start: Timestamp = WALL.parse().unwrap();
    start + jiff::SignedDuration::from_secs(seconds)
}

/// Two nodes whose devices have conditions, a claim, and a pod that uses it.
fn story() -> (Story, Arc<PodInfo>) {
    let mut story = Story::new();
    for node in ["a", "b"] {
        let conditions = json!({"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]});
        story.slice(node, conditions);
    }
    story.0.set_wall_time(wall(0));
    story.claim("x", 1, &json!({}));
    let pod = story.pod("p", &["x"]);
    (story, pod)
}

/// The claim's status as the API has it: conditions of the device by type.
fn status(node: &str, conditions: &[(&str, &str)]) -> Value {
    let mut allocation = on(node);
    let result = &mut allocation["devices"]["results"][0];
    result["bindingConditions"] = json!(["Ready"]);
    result["bindingFailureConditions"] = json!(["Broken"]);
    allocation["allocationTimestamp"] = WALL.into();
    let condition = |(kind, status): &(&str, &str)| json!({"type": kind, "status": status, "reason": "Why", "message": "so"});
    let conditions: Vec<Value> = conditions.iter().map(condition).collect();
    json!({"status": {"allocation": allocation, "reservedFor": [{"uid": "p"}],
        "devices": [{"driver": "d", "pool": node, "device": "dev", "conditions": conditions}]}})
}

/// Reserves the claim for the pod, and has the API say so: the pod waits.
fn waiting() -> (Story, Arc<PodInfo>, Box<str>) {
    let (mut story, pod) = story();
    let (_, node, reservation) = story.reserved(NOW);
    assert_eq!(reservation.conditions, [ObjectKey::new("ns", "x")]);
    story.0.volumes_written(&pod, &node, written(reservation, 2), NOW);
    story.claim("x", 2, &status(&node, &[]));
    assert!(story.0.decide_burst(NOW, 9, || 0).is_empty());
    (story, pod, node)
}

#[track_caller]
fn failed(story: &mut Story, now: Duration) -> String {
    match story.0.decide_burst(now, 9, || 0).pop() {
        Some(Decision::Fail { message, .. }) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn pod_is_bound_once_all_conditions_are_true() {
    let (mut story, _, node) = waiting();
    story.claim("x", 3, &status(&node, &[("Ready", "False"), ("Broken", "False")]));
    assert!(story.0.decide_burst(NOW, 9, || 0).is_empty());
    story.claim("x", 4, &status(&node, &[("Ready", "True")]));
    let decided = story.0.decide_burst(NOW, 9, || 0);
    assert!(matches!(&decided[..], [Decision::Bind { .. }]), "{decided:?}");
}

#[test]
fn allocation_says_the_conditions_of_its_devices() {
    let (mut story, _) = story();
    let (_, node, reservation) = story.reserved(NOW);
    let mut expected = status(&node, &[])["status"]["allocation"].clone();
    expected.as_object_mut().unwrap().remove("allocationTimestamp");
    assert_eq!(reservation.devices[0].allocation, Some(expected));
}

#[test]
fn condition_that_fails_ends_the_wait_and_the_claim_gives_its_devices_back() {
    let (mut story, pod, node) = waiting();
    story.claim("x", 3, &status(&node, &[("Broken", "True")]));
    assert_eq!(
        failed(&mut story, NOW),
        "running PreBind plugin \"DynamicResources\": device binding failed: claim=x, reason=Why, message=\"so\""
    );
    story.0.binding_failed(&pod, NOW);
    let (message, deallocation) = story.rejected(LATER);
    assert!(
        message.contains("2 resourceclaim not available on the node"),
        "{message}"
    );
    assert_eq!(deallocation.map(|own| own.claim), Some(ObjectKey::new("ns", "x")));
}

#[test]
fn wait_ends_after_the_timeout_of_the_profile() {
    let (mut story, pod, _) = waiting();
    let end = Duration::from_secs(600);
    assert_eq!(story.0.next_wake(), Some(end));
    story.0.set_wall_time(wall(601));
    assert_eq!(
        failed(&mut story, end),
        "running PreBind plugin \"DynamicResources\": device binding timeout: claim=x"
    );
    // Who waited for it looks elsewhere once the claim has given its device back.
    story.0.binding_failed(&pod, end);
    let (_, deallocation) = story.rejected(end + LATER);
    assert!(deallocation.is_some());
}

#[test]
fn claim_that_is_seen_late_ends_the_wait_without_its_name() {
    let (mut story, pod) = story();
    let (_, node, reservation) = story.reserved(NOW);
    story.0.volumes_written(&pod, &node, written(reservation, 2), NOW);
    assert_eq!(
        failed(&mut story, Duration::from_secs(600)),
        "running PreBind plugin \"DynamicResources\": device binding timeout: context deadline exceeded"
    );
}

#[test]
fn wait_for_a_claim_that_has_its_devices_for_long_is_the_shorter() {
    let (mut story, _) = story();
    // An earlier run of the scheduler reserved it: it is written, and the pod waits all the same.
    story.claim("x", 2, &status("a", &[]));
    story.0.set_wall_time(wall(500));
    let (pod, node, reservation) = story.reserved(NOW);
    assert_eq!(reservation.devices, []);
    story.0.volumes_written(&pod, &node, reservation, NOW);
    assert!(story.0.decide_burst(NOW, 9, || 0).is_empty());
    assert_eq!(story.0.next_wake(), Some(Duration::from_secs(100)));
    story.claim("x", 3, &status(&node, &[("Ready", "True")]));
    let decided = story.0.decide_burst(NOW, 9, || 0);
    assert!(matches!(&decided[..], [Decision::Bind { .. }]), "{decided:?}");
}

#[test]
fn claim_that_goes_ends_the_wait() {
    let (mut story, ..) = waiting();
    story
        .0
        .device_claim_changed(&ObjectKey::new("ns", "x"), None, NOW);
    assert_eq!(
        failed(&mut story, NOW),
        "running PreBind plugin \"DynamicResources\": could not find v1.ResourceClaim \"ns/x\""
    );
}

#[test]
fn timeout_of_the_arguments_counts() {
    let args = json!({"bindingTimeout": "30s"});
    let document = json!({"apiVersion": crate::config::API_VERSION, "kind": "KubeSchedulerConfiguration",
        "profiles": [{"pluginConfig": [{"name": "DynamicResources", "args": args}]}]});
    let configuration = Configuration::read(&document).unwrap();
    let mut scheduler = Scheduler::new(&configuration);
    let pod = make_pod("p", json!({"schedulerName": "default-scheduler"}));
    let key = ObjectKey::new("ns", "x");
    let claim = claim_of(&json!({"metadata": {"uid": "u"}, "status": status("a", &[])["status"]}));
    scheduler.device_claim_changed(&key, Some(claim), NOW);
    scheduler.set_wall_time(wall(10));
    let reservation = Reservation {
        conditions: vec![key],
        ..Reservation::default()
    };
    let end = scheduler.conditions_end(&pod, &reservation, LATER);
    assert_eq!(end, Some(LATER + Duration::from_secs(20)));
}

#[test]
fn pools_without_conditions_come_first() {
    let mut story = Story::new();
    story.0.device_slice_changed("b", None, NOW);
    story.slice("a", json!({"bindingConditions": ["Ready"]}));
    let pool = json!({"name": "z", "generation": 1, "resourceSliceCount": 1});
    let spec = json!({"driver": "d", "pool": pool, "nodeName": "a", "devices": [{"name": "dev"}]});
    let slice = slice_of(&json!({"metadata": {"name": "z"}, "spec": spec}));
    story.0.device_slice_changed("z", Some(slice), NOW);
    story.claim("x", 1, &json!({}));
    story.pod("p", &["x"]);
    let (.., reservation) = story.reserved(NOW);
    let allocation = reservation.devices[0].allocation.as_ref().unwrap();
    assert_eq!(allocation["devices"]["results"][0]["pool"], "z");
    assert_eq!(reservation.conditions, []);
}

#[derive(Debug, Deserialize)]
struct Case {
    name: String,
    status: Value,
    ready: Option<bool>,
    /// Beginning of the error, where the devices failed.
    failed: Option<String>,
    /// Seconds since the allocation, and whether the devices are given up.
    #[serde(default)]
    unfit: Vec<(i64, bool)>,
}

/// Upstream's cases of `isClaimReadyForBinding` and `isClaimTimeout`, and a few of ours.
#[test]
fn readiness_of_a_claim_is_upstreams() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("data/conditions.json")).unwrap();
    for case in cases {
        let claim = claim_of(&json!({"status": case.status}));
        let status = claim.status.get();
        let expected = match (case.ready, case.failed) {
            (_, Some(why)) => Readiness::Failed(why),
            (Some(true), None) => Readiness::Ready,
            _ => Readiness::Pending,
        };
        assert_eq!(status.readiness("my-claim"), expected, "{}", case.name);
        for (after, unfit) in case.unfit {
            let found = status.is_unfit(Duration::from_secs(600), wall(after));
            assert_eq!(found, unfit, "{} after {after} seconds", case.name);
        }
    }
}
