//! Extended resources that classes of devices serve.

use super::stories::{Story, on, owned_by};
use super::*;
use crate::devices::extended::{NewClaim, Served};
use crate::devices::{DeviceReservation, SpecialReservation};
use crate::extended_requests::{extended_requests, is_extended};
use crate::volumes::Reservation;
use machinery_meta::Revision;
use serde::Deserialize;
use std::collections::BTreeMap;

const NOW: Duration = Duration::ZERO;
const LATER: Duration = Duration::from_secs(60);

#[derive(Debug, Deserialize)]
struct Case {
    name: String,
    spec: Value,
    /// Classes by resource.
    served: BTreeMap<String, String>,
    /// Name, class and number.
    requests: Option<Vec<String>>,
    /// Container, resource and request, by request.
    mappings: Option<Vec<String>>,
}

/// Upstream's `Test_createRequestsAndMappings_requests` and `_mappings`, and a few of ours.
#[test]
fn requests_and_mappings_are_upstreams() {
    let cases = include_str!("data/extended_requests.json");
    let cases: Vec<Case> = serde_json::from_str(cases).unwrap();
    for case in cases {
        let pod: Pod = serde_json::from_value(json!({"spec": case.spec})).unwrap();
        let served: Served<'_> = case
            .served
            .iter()
            .map(|(name, class)| (&**name, &**class))
            .collect();
        let made = NewClaim::of(&extended_requests(&pod), &served);
        let spec = made.spec_value();
        let requests = spec["devices"]["requests"].as_array().unwrap().iter();
        let text = |own: &Value| own.as_str().unwrap_or_default().to_owned();
        let requests = requests.map(|own| {
            let exactly = &own["exactly"];
            format!(
                "{} {} {}",
                text(&own["name"]),
                text(&exactly["deviceClassName"]),
                exactly["count"]
            )
        });
        if let Some(expected) = case.requests {
            assert_eq!(requests.collect::<Vec<_>>(), expected, "{}", case.name);
        }
        let mappings = json!(made.mappings);
        let mut mappings: Vec<[String; 3]> = mappings
            .as_array()
            .unwrap()
            .iter()
            .map(|own| ["requestName", "containerName", "resourceName"].map(|part| text(&own[part])))
            .collect();
        mappings.sort();
        let mappings = mappings
            .iter()
            .map(|[request, container, resource]| format!("{container} {resource} {request}"));
        if let Some(expected) = case.mappings {
            assert_eq!(mappings.collect::<Vec<_>>(), expected, "{}", case.name);
        }
    }
}

#[test]
fn resources_that_devices_may_serve() {
    for (name, expected) in [
        ("example.com/gpu", true),
        ("deviceclass.resource.kubernetes.io/c", true),
        ("cpu", false),
        ("hugepages-2Mi", false),
        ("kubernetes.io/batteries", false),
        ("requests.example.com/gpu", false),
    ] {
        assert_eq!(is_extended(name), expected, "{name}");
    }
}

/// The class of a story says that it serves this resource.
const GPU: &str = "example.com/gpu";

impl Story {
    fn serve(&mut self, created: &str) {
        self.serving("c", created);
    }

    fn serving(&mut self, class: &str, created: &str) {
        let selector = json!({"cel": {"expression": "device.driver == 'd'"}});
        let class_of = class_of(&json!({"metadata": {"name": class, "creationTimestamp": created},
            "spec": {"selectors": [selector], "extendedResourceName": GPU}}));
        self.0.device_class_changed(class, Some(class_of), NOW);
    }

    fn pod_of(&mut self, name: &str, resource: &str, count: &str) -> Arc<PodInfo> {
        let container = json!({"name": "c", "resources": {"requests": {resource: count}}});
        let pod = json!({"metadata": {"name": name, "namespace": "ns", "uid": name},
            "spec": {"schedulerName": "default-scheduler", "containers": [container]}});
        let pod = Arc::new(PodInfo::new(serde_json::from_value(pod).unwrap()));
        self.0.pod_changed(&pod.key, Some(&pod), NOW);
        pod
    }

    /// The special claim as the API has it.
    fn made(&mut self, name: &str, pod: &str, version: u64, status: &Value) {
        let mut rest = owned_by(pod);
        rest["metadata"]["annotations"] = json!({"resource.kubernetes.io/extended-resource-claim": "true"});
        rest["status"] = status.clone();
        self.claim(name, version, &rest);
    }
}

/// The only reservation, which makes a claim.
#[track_caller]
fn special(reservation: &Reservation) -> (&DeviceReservation, &SpecialReservation) {
    let [own] = &reservation.devices[..] else {
        panic!("{reservation:?}");
    };
    (own, own.special.as_ref().unwrap())
}

/// The reservation with its claim made and written.
fn written(mut reservation: Reservation, name: &str, version: u64) -> Reservation {
    for own in &mut reservation.devices {
        own.written = Some(Revision(version));
        if let Some(special) = &mut own.special {
            special.made = Some((ObjectKey::new("ns", name), format!("uid-{name}").into()));
        }
    }
    reservation
}

#[test]
fn pod_with_an_extended_resource_gets_devices_by_a_claim_of_its_own() {
    for resource in [GPU, "deviceclass.resource.kubernetes.io/c"] {
        let mut story = Story::new();
        story.serve("2026-01-01T00:00:00Z");
        let pod = story.pod_of("p", resource, "1");
        assert!(story.0.is_heavy_next(NOW), "it is decided on a thread of its own");
        let (_, node, reservation) = story.reserved(NOW);
        let (own, made) = special(&reservation);
        let exactly = json!({"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1});
        let request = json!({"name": "container-0-request-0", "exactly": exactly});
        assert_eq!(made.spec, json!({"devices": {"requests": [request]}}));
        let mapping =
            json!({"containerName": "c", "resourceName": resource, "requestName": "container-0-request-0"});
        assert_eq!(made.mappings, json!([mapping]));
        let mut expected = on(&node);
        expected["devices"]["results"][0]["request"] = "container-0-request-0".into();
        assert_eq!(own.allocation, Some(expected));
        story
            .0
            .volumes_written(&pod, &node, written(reservation, "p-made", 2), NOW);
        let decided = story.0.decide_burst(NOW, 9, || 0);
        assert!(matches!(&decided[..], [Decision::Bind { .. }]), "{decided:?}");
    }
}

#[test]
fn devices_of_extended_resources_stay_taken_whatever_the_informer_has_seen() {
    let mut story = Story::new();
    story.0.device_slice_changed("b", None, NOW);
    story.serve("2026-01-01T00:00:00Z");
    let pod = story.pod_of("p", GPU, "1");
    let (_, node, reservation) = story.reserved(NOW);
    let is_taken = |story: &mut Story, name: &str| {
        story.pod_of(name, GPU, "1");
        let (message, _) = story.rejected(NOW);
        assert!(message.contains("2 cannot allocate all claims"), "{message}");
    };
    is_taken(&mut story, "q1");
    story
        .0
        .volumes_written(&pod, &node, written(reservation, "p-made", 3), NOW);
    assert!(matches!(
        story.0.decide(NOW, 0),
        Some(Decision::Bind { .. }) | None
    ));
    is_taken(&mut story, "q2");
    // It comes without its devices first.
    story.made("p-made", "p", 2, &json!({}));
    is_taken(&mut story, "q3");
    story.made(
        "p-made",
        "p",
        3,
        &json!({"allocation": on("a"), "reservedFor": [{"uid": "p"}]}),
    );
    is_taken(&mut story, "q4");
    story
        .0
        .device_claim_changed(&ObjectKey::new("ns", "p-made"), None, NOW);
    let (pod, ..) = story.reserved(LATER);
    assert!(pod.key.name.starts_with('q'));
}

#[test]
fn claim_that_was_made_and_never_seen_is_forgotten_with_its_pod() {
    let mut story = Story::new();
    story.0.device_slice_changed("b", None, NOW);
    story.serve("2026-01-01T00:00:00Z");
    let pod = story.pod_of("p", GPU, "1");
    let (_, node, reservation) = story.reserved(NOW);
    story
        .0
        .volumes_written(&pod, &node, written(reservation, "p-made", 3), NOW);
    story.0.decide_burst(NOW, 9, || 0);
    story.0.pod_changed(&pod.key, None, NOW);
    story.pod_of("q", GPU, "1");
    let _ = story.reserved(NOW);
}

#[test]
fn reservation_that_is_not_written_gives_the_devices_back() {
    let mut story = Story::new();
    story.0.device_slice_changed("b", None, NOW);
    story.serve("2026-01-01T00:00:00Z");
    let pod = story.pod_of("p", GPU, "1");
    let (.., reservation) = story.reserved(NOW);
    story.0.volumes_not_written(&pod, &reservation, NOW);
    story.0.pod_changed(&pod.key, None, NOW);
    story.pod_of("q", GPU, "1");
    let _ = story.reserved(LATER);
}

#[test]
fn node_that_has_the_resource_from_a_device_plugin_needs_no_devices() {
    let mut story = Story::new();
    story.serve("2026-01-01T00:00:00Z");
    let node = make_node(&json!({"name": "b", "gpu": "2"}));
    story.0.node_changed("b", Some(&node), NOW);
    story.0.node_changed("a", None, NOW);
    story.pod_of("p", GPU, "2");
    let decided = story.0.decide(NOW, 0);
    assert!(matches!(&decided, Some(Decision::Bind { .. })), "{decided:?}");
    story.pod_of("q", GPU, "1");
    let (message, _) = story.rejected(NOW);
    assert!(message.contains("1 Insufficient example.com/gpu"), "{message}");
}

#[test]
fn pod_waits_for_a_class_that_serves_its_resource() {
    let mut story = Story::new();
    story.pod_of("p", GPU, "1");
    let (message, _) = story.rejected(NOW);
    assert!(message.contains("2 Insufficient example.com/gpu"), "{message}");
    // A class of another resource does not help.
    story.class("other", json!({"extendedResourceName": "example.com/other"}));
    assert!(!story.0.queue.has_next(LATER));
    story.serve("2026-01-01T00:00:00Z");
    let _ = story.reserved(LATER);
    // Without the class the answers that are kept are no more.
    let empty = class_of(&json!({"metadata": {"name": "c"}}));
    story.0.device_class_changed("c", Some(empty), LATER);
    story.pod_of("q", GPU, "1");
    let (message, _) = story.rejected(LATER);
    assert!(message.contains("Insufficient example.com/gpu"), "{message}");
}

#[test]
fn newest_class_serves_a_resource_that_several_name() {
    let mut story = Story::new();
    let served = |story: &Story| story.0.nodes.devices.classes.of_resource(GPU).map(str::to_owned);
    story.serving("b", "2026-01-01T00:00:00Z");
    story.serving("c", "2026-01-01T00:00:00Z");
    assert_eq!(served(&story).as_deref(), Some("b"), "the lower name");
    story.serving("d", "2026-01-02T00:00:00Z");
    story.serving("a", "2025-01-01T00:00:00Z");
    assert_eq!(served(&story).as_deref(), Some("d"), "the newer one");
    story.0.device_class_changed("d", None, NOW);
    assert_eq!(served(&story).as_deref(), Some("b"));
    for name in ["a", "b", "c"] {
        story.0.device_class_changed(name, None, NOW);
    }
    assert_eq!(served(&story), None);
}

#[test]
fn claim_of_an_attempt_before_is_deleted_first() {
    let mut story = Story::new();
    story.serve("2026-01-01T00:00:00Z");
    // One of another namespace only says that it is of the pod.
    let key = ObjectKey::new("elsewhere", "x");
    let mut foreign = owned_by("p");
    foreign["metadata"]["annotations"] = json!({"resource.kubernetes.io/extended-resource-claim": "true"});
    story.0.device_claim_changed(&key, Some(claim_of(&foreign)), NOW);
    // It has no devices: its end frees none.
    story.made("left", "p", 7, &json!({}));
    story.pod_of("p", GPU, "1");
    let (message, deletion) = story.rejected(NOW);
    assert!(
        message.contains("2 cannot schedule extended resource claim"),
        "{message}"
    );
    assert!(
        message.contains("deletion of ResourceClaim completed"),
        "{message}"
    );
    let deletion = deletion.unwrap();
    assert_eq!(
        (deletion.claim, deletion.deletes),
        (ObjectKey::new("ns", "left"), true)
    );
    assert!(!story.0.queue.has_next(LATER));
    story
        .0
        .device_claim_changed(&ObjectKey::new("ns", "left"), None, NOW);
    let _ = story.reserved(LATER);
}

#[test]
fn conditions_of_devices_are_waited_for_under_the_name_of_the_claim_that_is_made() {
    let mut story = Story::new();
    for node in ["a", "b"] {
        story.slice(node, json!({"bindingConditions": ["Ready"]}));
    }
    story.serve("2026-01-01T00:00:00Z");
    let pod = story.pod_of("p", GPU, "1");
    let (_, node, reservation) = story.reserved(NOW);
    assert_eq!(reservation.conditions.len(), 1);
    story
        .0
        .volumes_written(&pod, &node, written(reservation, "p-made", 2), NOW);
    assert!(story.0.decide_burst(NOW, 9, || 0).is_empty());
    let mut allocation = on(&node);
    allocation["devices"]["results"][0]["bindingConditions"] = json!(["Ready"]);
    let condition = json!({"type": "Ready", "status": "True"});
    let devices = json!([{"driver": "d", "pool": &*node, "device": "dev", "conditions": [condition]}]);
    let status = json!({"allocation": allocation, "reservedFor": [{"uid": "p"}], "devices": devices});
    story.made("p-made", "p", 3, &status);
    let decided = story.0.decide_burst(NOW, 9, || 0);
    assert!(matches!(&decided[..], [Decision::Bind { .. }]), "{decided:?}");
}
