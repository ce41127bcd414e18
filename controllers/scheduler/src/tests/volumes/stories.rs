//! From a pod with claims to its binding, and what becomes of it where claims are not bound.

use super::*;
use crate::decision::Preemption;
use crate::volumes::Reservation;
use machinery_meta::Revision;

/// Two nodes, a class whose claims wait for a pod, and one whose volumes are made by hand.
struct Story(Scheduler);

const NOW: Duration = Duration::ZERO;
/// Upstream's default.
const BIND_TIMEOUT: Duration = Duration::from_secs(600);

impl Story {
    fn new() -> Self {
        let mut story = Self(Scheduler::default());
        for node in ["a", "b"] {
            story
                .0
                .node_changed(node, Some(&make_node(&json!({"name": node}))), NOW);
        }
        let wait = "WaitForFirstConsumer";
        for (name, provisioner) in [
            ("made", "example.com/p"),
            ("local", "kubernetes.io/no-provisioner"),
        ] {
            let class = json!({"provisioner": provisioner, "volumeBindingMode": wait});
            story.0.class_changed(name, Some(class_of(&class)), NOW);
        }
        story
    }

    fn claim(&mut self, name: &str, version: u64, rest: Value) {
        let mut object = json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"),
            "resourceVersion": version.to_string()}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}});
        merge(&mut object, rest);
        self.0
            .claim_changed(&key_of(&object), Some(claim_of(&object)), NOW);
    }

    fn volume(&mut self, name: &str, version: u64, node: &str, rest: Value) {
        let here = json!([{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]);
        let mut object = json!({"metadata": {"name": name, "resourceVersion": version.to_string()},
            "spec": {"capacity": {"storage": "2Gi"}, "storageClassName": "local",
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": here}]}}},
            "status": {"phase": "Available"}});
        merge(&mut object, rest);
        self.0.volume_changed(name, Some(volume_of(&object)), NOW);
    }

    fn pod(&mut self, name: &str, claims: &[&str]) -> Arc<PodInfo> {
        self.pod_with(name, claims, json!({}))
    }

    fn pod_with(&mut self, name: &str, claims: &[&str], rest: Value) -> Arc<PodInfo> {
        let volume = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
        let volumes: Vec<Value> = claims.iter().map(volume).collect();
        let mut spec = json!({"schedulerName": "default-scheduler", "volumes": volumes});
        merge(&mut spec, rest);
        let pod = make_pod(name, spec);
        self.0.pod_changed(&pod.key, Some(&pod), NOW);
        pod
    }

    #[track_caller]
    fn decide(&mut self) -> Decision {
        let mut decisions = self.0.decide_burst(NOW, 1, || 0);
        decisions.pop().expect("a decision")
    }

    #[track_caller]
    fn reserved(&mut self) -> (Arc<PodInfo>, Box<str>, Reservation) {
        match self.decide() {
            Decision::Reserve {
                pod,
                node,
                reservation,
            } => (pod, node, reservation),
            other => panic!("{other:?}"),
        }
    }

    /// The driver wrote it all, at this version.
    fn written(&mut self, pod: &Arc<PodInfo>, node: &str, mut reservation: Reservation, version: u64) {
        for own in &mut reservation.bindings {
            (own.revision, own.written) = (Revision(version), true);
        }
        for own in &mut reservation.provisions {
            (own.revision, own.written) = (Revision(version), true);
        }
        self.0.volumes_written(pod, node, reservation, NOW);
    }

    #[track_caller]
    fn is_bound_to(&mut self, expected: &str) {
        match self.decide() {
            Decision::Bind { node, .. } => assert_eq!(&*node, expected),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn fails(&mut self, expected: &str) -> Arc<PodInfo> {
        match self.decide() {
            Decision::Fail { pod, message, .. } => {
                let prefix = "running PreBind plugin \"VolumeBinding\": binding volumes: ";
                assert_eq!(message.strip_prefix(prefix), Some(expected), "{message}");
                pod
            }
            other => panic!("{other:?}"),
        }
    }

    fn is_quiet(&mut self) -> bool {
        self.0.decide_burst(NOW, 1, || 0).is_empty()
    }
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn waiting(class: &str) -> Value {
    json!({"spec": {"storageClassName": class}})
}

fn selected(node: &str) -> Value {
    json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": node}}, "spec": {"storageClassName": "made"}})
}

fn bound(mut claim: Value, volume: &str) -> Value {
    merge(
        &mut claim,
        json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": volume}}),
    );
    claim
}

fn claimed_by(claim: &str) -> Value {
    json!({"spec": {"claimRef": {"namespace": "ns", "name": claim, "uid": format!("uid-{claim}")}}})
}

#[test]
fn pod_is_bound_once_its_volume_is_made() {
    let mut story = Story::new();
    story.claim("data", 1, waiting("made"));
    story.pod("p", &["data"]);
    let (pod, node, reservation) = story.reserved();
    assert!(reservation.bindings.is_empty());
    let [provision] = &reservation.provisions[..] else {
        panic!("{reservation:?}")
    };
    assert_eq!((provision.revision, provision.written), (Revision(1), false));
    story.written(&pod, &node, reservation, 2);
    assert!(story.is_quiet(), "the claim is not bound");
    story.claim("data", 2, selected(&node));
    assert!(story.is_quiet(), "the claim is not bound");
    story.claim("data", 3, bound(selected(&node), "v"));
    assert!(story.is_quiet(), "the volume is not seen yet");
    story.volume("v", 3, &node, claimed_by("data"));
    story.is_bound_to(&node);
}

#[test]
fn pod_gets_the_smallest_volume_of_its_node_and_no_other_pod_does() {
    let mut story = Story::new();
    story.claim("data", 1, waiting("local"));
    story.claim("more", 1, waiting("local"));
    story.volume("large", 1, "b", json!({"spec": {"capacity": {"storage": "5Gi"}}}));
    story.volume("small", 1, "b", json!({}));
    story.volume("tiny", 1, "a", json!({"spec": {"capacity": {"storage": "1Mi"}}}));
    story.pod("p", &["data"]);
    let (pod, node, reservation) = story.reserved();
    let [binding] = &reservation.bindings[..] else {
        panic!("{reservation:?}")
    };
    assert_eq!((&*node, &*binding.volume, binding.marks), ("b", "small", true));
    assert_eq!((&*binding.claim_uid, binding.written), ("uid-data", false));
    story.pod("q", &["more"]);
    let (_, _, other) = story.reserved();
    assert_eq!(&*other.bindings[0].volume, "large");
    story.written(&pod, &node, reservation, 2);
    story.volume("small", 2, "b", claimed_by("data"));
    assert!(story.is_quiet());
    story.claim("data", 3, bound(waiting("local"), "small"));
    story.is_bound_to("b");
}

#[test]
fn volume_that_was_not_written_is_free_again() {
    let mut story = Story::new();
    story.claim("data", 1, waiting("local"));
    story.volume("small", 1, "b", json!({}));
    story.pod("p", &["data"]);
    let (pod, _, reservation) = story.reserved();
    story.0.volumes_not_written(&pod, &reservation, NOW);
    story.0.pod_changed(&pod.key, None, NOW);
    story.claim("more", 1, waiting("local"));
    story.pod("q", &["more"]);
    let (_, _, other) = story.reserved();
    assert_eq!(&*other.bindings[0].volume, "small");
}

#[test]
fn pod_whose_claims_are_not_bound_in_time_is_tried_again() {
    let mut story = Story::new();
    story.claim("data", 1, waiting("made"));
    story.pod_with("p", &["data"], json!({"cpu": "4"}));
    let (pod, node, reservation) = story.reserved();
    story.written(&pod, &node, reservation, 2);
    assert_eq!(story.0.next_wake(), Some(BIND_TIMEOUT));
    assert!(!story.0.has_work(BIND_TIMEOUT - Duration::from_millis(1)));
    let decisions = story.0.decide_burst(BIND_TIMEOUT, 1, || 0);
    let [Decision::Fail { pod, message, .. }] = &decisions[..] else {
        panic!("{decisions:?}")
    };
    let expected = "running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded";
    assert_eq!(message, expected);
    story.0.binding_failed(pod, BIND_TIMEOUT);
    // Its node is the one that was selected.
    story.claim("data", 2, selected(&node));
    let again = story
        .0
        .decide_burst(BIND_TIMEOUT + Duration::from_secs(60), 1, || 1);
    let [
        Decision::Reserve {
            node: same,
            reservation,
            ..
        },
    ] = &again[..]
    else {
        panic!("{again:?}")
    };
    assert_eq!(*same, node);
    assert!(reservation.provisions[0].written, "nothing is to be written");
}

#[test]
fn claim_whose_provisioner_gave_up_fails_the_pod() {
    let mut story = Story::new();
    story.claim("data", 1, waiting("made"));
    story.pod("p", &["data"]);
    let (pod, node, reservation) = story.reserved();
    story.written(&pod, &node, reservation, 2);
    story.claim("data", 3, waiting("made"));
    let failed = story.fails("provisioning failed for PVC \"data\"");
    story.0.binding_failed(&failed, NOW);
    assert!(
        story.0.nodes.node_of(&pod.key).is_none(),
        "its node is free again"
    );
}

#[test]
fn volume_and_node_that_part_fail_the_pod() {
    let mut story = Story::new();
    story.claim("data", 1, waiting("local"));
    story.volume("v", 1, "b", json!({}));
    story.pod("p", &["data"]);
    let (pod, node, reservation) = story.reserved();
    story.written(&pod, &node, reservation, 2);
    story.volume("v", 2, "b", claimed_by("data"));
    let mut other = make_node(&json!({"name": "b"}));
    other.metadata.labels = serde_json::from_value(json!({"kubernetes.io/hostname": "c"})).unwrap();
    story.0.node_changed("b", Some(&other), NOW);
    story.fails("pv \"v\" node affinity doesn't match node \"b\": no matching NodeSelectorTerms");
}

/// A node writes its own host name (upstream's may), and has no other node's folders by it.
#[test]
fn volume_of_the_bundled_provisioner_is_on_the_node_that_made_it() {
    let arrange = |annotations: Value| {
        let mut story = Story::new();
        let mut eve = make_node(&json!({"name": "a"}));
        eve.metadata.labels = serde_json::from_value(json!({"kubernetes.io/hostname": "b"})).unwrap();
        story.0.node_changed("a", Some(&eve), NOW);
        story.0.node_changed("b", None, NOW);
        story.claim("data", 1, waiting("local"));
        story.volume("v", 1, "b", json!({"metadata": {"annotations": annotations}}));
        story.pod("p", &["data"]);
        story
    };
    let by = |provisioner: &str| json!({"pv.kubernetes.io/provisioned-by": provisioner, "knarr/node": "b"});
    let (_, node, _) = arrange(by("example.com/p")).reserved();
    assert_eq!(
        &*node, "a",
        "the label is all that another provisioner's volume has"
    );
    let decision = arrange(by("knarr/local-path")).decide();
    assert!(!matches!(decision, Decision::Reserve { .. }), "{decision:?}");
}

#[test]
fn node_or_volume_that_goes_fails_the_pod() {
    let arrange = || {
        let mut story = Story::new();
        story.claim("data", 1, waiting("local"));
        story.volume("v", 1, "b", json!({}));
        story.pod("p", &["data"]);
        let (pod, node, reservation) = story.reserved();
        story.written(&pod, &node, reservation, 2);
        story
    };
    let mut story = arrange();
    story.0.node_changed("b", None, NOW);
    story.fails("failed to get node \"b\": node \"b\" not found");
    let mut story = arrange();
    story.0.volume_changed("v", None, NOW);
    story.fails("failed to check binding: could not find v1.PersistentVolume \"v\"");
    let mut story = arrange();
    story.volume("v", 3, "b", json!({}));
    story.fails("ClaimRef got reset for pv \"v\"");
}

#[test]
fn pod_that_goes_waits_no_more() {
    let mut story = Story::new();
    story.claim("data", 1, waiting("made"));
    story.pod("p", &["data"]);
    let (pod, node, reservation) = story.reserved();
    story.written(&pod, &node, reservation.clone(), 2);
    story.0.pod_changed(&pod.key, None, NOW);
    assert_eq!(story.0.next_wake(), None);
    // The driver comes late with what it wrote.
    story.written(&pod, &node, reservation, 2);
    assert_eq!(story.0.next_wake(), None);
}

#[test]
fn waiting_pods_do_not_hold_back_others() {
    let mut story = Story::new();
    for number in 0..100 {
        let name = format!("claim-{number}");
        story.claim(&name, 1, waiting("made"));
        story.pod(&format!("p-{number}"), &[name.as_str()]);
        let (pod, node, reservation) = story.reserved();
        story.written(&pod, &node, reservation, 2);
    }
    let plain = make_pod("plain", json!({"schedulerName": "default-scheduler"}));
    story.0.pod_changed(&plain.key, Some(&plain), NOW);
    assert!(matches!(story.decide(), Decision::Bind { .. }));
}

#[test]
fn claim_of_one_pod_alone_is_taken_by_preemption() {
    let mut story = Story::new();
    let alone = json!({"spec": {"accessModes": ["ReadWriteOncePod"], "storageClassName": "local"}});
    story.claim("data", 2, bound(alone, "v"));
    story.volume("v", 2, "b", claimed_by("data"));
    let first = story.pod_with("first", &["data"], json!({"nodeName": "b"}));
    story.pod_with("second", &["data"], json!({"priority": 5}));
    let Decision::Reject {
        message,
        preemption: Some(Preemption { node, victims, .. }),
        ..
    } = story.decide()
    else {
        panic!("no preemption")
    };
    let expected = "0/2 nodes are available: 2 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod \
        access mode already in-use by another pod. preemption:";
    assert!(message.starts_with(expected), "{message}");
    assert_eq!((&*node, victims.len()), ("b", 1));
    story.0.pod_changed(&first.key, None, Duration::from_secs(60));
    assert!(story.0.has_work(Duration::from_secs(60)), "the claim is free");
    story.is_bound_to("b");
}

#[test]
fn pod_of_the_same_priority_waits_for_a_claim_of_one_pod_alone() {
    let mut story = Story::new();
    let alone = json!({"spec": {"accessModes": ["ReadWriteOncePod"], "storageClassName": "local"}});
    story.claim("data", 2, bound(alone, "v"));
    story.volume("v", 2, "b", claimed_by("data"));
    let first = story.pod_with("first", &["data"], json!({"nodeName": "b"}));
    story.pod("second", &["data"]);
    assert!(matches!(
        story.decide(),
        Decision::Reject { preemption: None, .. }
    ));
    let other = make_pod("other", json!({"nodeName": "b"}));
    story.0.pod_changed(&other.key, Some(&other), NOW);
    story.0.pod_changed(&other.key, None, NOW);
    assert!(story.is_quiet(), "another pod's end does not help");
    story.0.pod_changed(&first.key, None, NOW);
    story.is_bound_to("b");
}

#[test]
fn candidates_cost_what_the_node_reaches() {
    const VOLUMES: usize = 500;
    let mut story = Story::new();
    story.claim("data", 1, waiting("local"));
    for number in 0..VOLUMES {
        story.volume(&format!("v-{number}"), 1, &format!("other-{number}"), json!({}));
    }
    let pod = story.pod("p", &["data"]);
    let attempt = Attempt::new(&pod);
    let nodes = &story.0.nodes;
    let sorted = attempt.volumes(nodes).as_ref().unwrap();
    let before = attempt.steps();
    assert!(before >= VOLUMES, "{before}");
    sorted.on(&attempt, nodes, 0);
    assert!(attempt.steps() - before < 10, "{}", attempt.steps());
}
