//! Upstream's tables of the binder as data: `binder_test.go` of 1.37 (TestSync, TestSyncBlockVolume, TestMultiSync), without
//! three cases about upstream's own cache, one of a provisioner and one of a feature gate that is off; `provision_test.go` and
//! `delete_test.go`, without those whose plugin provisions or deletes by itself, as no plugin of 1.37 but hostPath's does.

use super::matching::VolumeRef;
use super::plan::{ClaimRefObject, Cluster, Part, Step, of_claim, of_volume};
use super::views::{ClaimView, ClassView};
use machinery_client::Object;
use machinery_client::object::object_of;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Deserialize)]
struct Case {
    name: String,
    /// The object that is synced: the first `claim` or the first `volume`.
    sync: String,
    /// True if everything is synced until nothing changes.
    multi: bool,
    fails: bool,
    /// Before and after.
    volumes: [Vec<Value>; 2],
    claims: [Vec<Value>; 2],
    events: Vec<String>,
    /// Volumes that their provisioner makes after the first sync.
    #[serde(default)]
    appears: Vec<Value>,
}

#[derive(Default)]
struct Model {
    volumes: Vec<Value>,
    claims: Vec<Value>,
    classes: Vec<Value>,
    pods: Vec<String>,
    events: Vec<String>,
    failed: bool,
}

fn object<P: machinery_client::Projection>(value: &Value) -> Arc<Object<P>> {
    Arc::new(object_of(&value.to_string()).unwrap())
}

fn named<'a>(all: &'a [Value], name: &str) -> Option<&'a Value> {
    all.iter().find(|own| own["metadata"]["name"] == name)
}

impl Cluster for Model {
    fn volume(&self, name: &str) -> Option<VolumeRef> {
        named(&self.volumes, name).map(object)
    }

    fn claim(&self, _: &str, name: &str) -> Option<ClaimRefObject> {
        named(&self.claims, name).map(object)
    }

    fn candidates(&self, _: &Object<ClaimView>) -> Vec<VolumeRef> {
        self.volumes.iter().map(object).collect()
    }

    fn class(&self, name: &str) -> Option<Arc<Object<ClassView>>> {
        named(&self.classes, name).map(object)
    }

    fn default_class(&self) -> Option<Box<str>> {
        let classes = self.classes.iter().map(object::<ClassView>);
        let mut defaults = classes.filter(|class| class.is_default);
        defaults.next().map(|class| class.name().into())
    }

    fn waiting_pods(&self, _: &Object<ClaimView>) -> Vec<String> {
        self.pods.clone()
    }
}

impl Model {
    fn sync_claim(&mut self, at: usize) {
        let steps = of_claim(self, &object(&self.claims[at]));
        self.apply(steps);
    }

    fn sync_volume(&mut self, at: usize) {
        let steps = of_volume(self, &object(&self.volumes[at]));
        self.apply(steps);
    }

    fn apply(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Write(part, body) => {
                    let all = match part {
                        Part::Volume | Part::VolumeStatus => &mut self.volumes,
                        Part::Claim | Part::ClaimStatus => &mut self.claims,
                    };
                    let same = |own: &&mut Value| own["metadata"]["name"] == body["metadata"]["name"];
                    let live = all.iter_mut().find(same).unwrap();
                    // As the server does: a status keeps to the status, all else to the rest.
                    if matches!(part, Part::VolumeStatus | Part::ClaimStatus) {
                        live["status"] = body["status"].clone();
                    } else {
                        let status = live["status"].take();
                        *live = body;
                        live["status"] = status;
                    }
                }
                Step::Event { warning, reason, .. } => {
                    let kind = if warning { "Warning" } else { "Normal" };
                    self.events.push(format!("{kind} {reason}"));
                }
                Step::WarnClaim { reason, .. } => self.events.push(format!("Warning {reason}")),
                Step::WakeClaim => {}
                Step::Fail(_) => self.failed = true,
            }
        }
    }

    fn settle(&mut self) {
        for _ in 0..20 {
            let before = (self.volumes.clone(), self.claims.clone());
            (0..self.claims.len()).for_each(|at| self.sync_claim(at));
            (0..self.volumes.len()).for_each(|at| self.sync_volume(at));
            if before == (self.volumes.clone(), self.claims.clone()) {
                return;
            }
        }
        panic!("it never settles");
    }
}

/// The objects without what the table does not speak of.
fn plain(all: &[Value]) -> Vec<Value> {
    let plain = |own: &Value| {
        let mut own = own.clone();
        if let Some(claim) = own["spec"].get_mut("claimRef").and_then(Value::as_object_mut) {
            claim.retain(|name, value| matches!(name.as_str(), "name" | "namespace" | "uid") && value != "");
        }
        let metadata = own["metadata"].as_object_mut().unwrap();
        metadata.remove("resourceVersion");
        metadata.retain(|_, value| *value != json!({}));
        if let Some(status) = own["status"].as_object_mut() {
            status.remove("message");
        }
        own
    };
    all.iter().map(plain).collect()
}

fn versioned(all: &[Value]) -> Vec<Value> {
    let mut all = all.to_vec();
    for own in &mut all {
        own["metadata"]["resourceVersion"] = json!("1");
        if own["metadata"]["uid"].is_null() {
            own["metadata"]["uid"] = json!("");
        }
    }
    all
}

#[test]
fn claims_and_volumes_bind_as_upstreams() {
    check_cases(include_str!("testdata/binder.jsonl"), 71);
}

#[test]
fn volumes_are_provisioned_and_deleted_as_upstreams() {
    check_cases(include_str!("testdata/provisioning.jsonl"), 15);
}

#[track_caller]
fn check_cases(cases: &str, expected: usize) {
    let mut count = 0;
    for line in cases.lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        let name = &case.name;
        let mut model = Model {
            volumes: versioned(&case.volumes[0]),
            claims: versioned(&case.claims[0]),
            classes: classes(),
            ..Model::default()
        };
        match (case.sync.as_str(), case.multi) {
            ("claim", _) => model.sync_claim(0),
            _ => model.sync_volume(0),
        }
        if case.multi {
            assert!(
                model.events.starts_with(&case.events),
                "{name}: {:?}",
                model.events
            );
            model.volumes.extend(versioned(&case.appears));
            model.settle();
        } else {
            // Upstream compares as many events as it names.
            model.events.truncate(case.events.len());
            assert_eq!(model.events, case.events, "{name}");
            assert_eq!(model.failed, case.fails, "{name}");
        }
        let expect = |all: &[Value]| plain(&versioned(all));
        assert_eq!(plain(&model.volumes), expect(&case.volumes[1]), "{name}");
        assert_eq!(plain(&model.claims), expect(&case.claims[1]), "{name}");
        count += 1;
    }
    assert_eq!(count, expected);
}

/// Classes of upstream's tables.
fn classes() -> Vec<Value> {
    let (now, later) = ("Immediate", "WaitForFirstConsumer");
    [
        ("wait", "example.com/p", later),
        ("gold", "kubernetes.io/mock-volume", now),
        ("external", "vendor.com/my-volume", now),
        ("external-wait", "vendor.com/my-volume-wait", later),
        ("unknown-internal", "kubernetes.io/unknown", now),
    ]
    .map(|(name, provisioner, mode)| class(name, provisioner, mode, false))
    .to_vec()
}

fn claim(spec: &Value) -> Value {
    json!({"metadata": {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
        "spec": spec, "status": {"phase": "Pending"}})
}

fn class(name: &str, provisioner: &str, mode: &str, default: bool) -> Value {
    json!({"metadata": {"name": name, "uid": "k", "resourceVersion": "1",
            "annotations": {"storageclass.kubernetes.io/is-default-class": default.to_string()}},
        "provisioner": provisioner, "volumeBindingMode": mode})
}

#[track_caller]
fn check_message(spec: &Value, classes: Vec<Value>, pods: &[&str], expected: &str) {
    let model = Model {
        classes,
        pods: pods.iter().map(|own| (*own).to_owned()).collect(),
        ..Model::default()
    };
    let steps = of_claim(&model, &object(&claim(spec)));
    let found = steps.iter().find_map(|step| match step {
        Step::Event { reason, message, .. } => Some(format!("{reason}: {message}")),
        _ => None,
    });
    assert_eq!(found.as_deref(), Some(expected));
}

#[test]
fn events_have_upstreams_words() {
    let waits = || vec![class("w", "example.com/p", "WaitForFirstConsumer", false)];
    let spec = json!({"storageClassName": "w"});
    let words = "WaitForFirstConsumer: waiting for first consumer to be created before binding";
    check_message(&spec, waits(), &[], words);
    let words = "WaitForPodScheduled: waiting for pod a to be scheduled";
    check_message(&spec, waits(), &["a"], words);
    let words = "WaitForPodScheduled: waiting for pods a,b to be scheduled";
    check_message(&spec, waits(), &["a", "b"], words);
    let words = "ProvisioningFailed: storageclass.storage.k8s.io \"w\" not found";
    check_message(&spec, Vec::new(), &[], words);
    let now = |provisioner: &str| vec![class("w", provisioner, "Immediate", false)];
    let words = "ProvisioningFailed: no volume plugin matched name: kubernetes.io/no-provisioner";
    check_message(&spec, now("kubernetes.io/no-provisioner"), &[], words);
    let words = "ExternalProvisioning: Waiting for a volume to be created either by the external provisioner 'example.com/p' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.";
    check_message(&spec, now("example.com/p"), &[], words);
    let words = "FailedBinding: no persistent volumes available for this claim and no storage class is set";
    check_message(&json!({}), Vec::new(), &[], words);
}

#[test]
fn claim_without_a_class_gets_the_default_one_and_one_that_wants_none_does_not() {
    let model = || Model {
        classes: vec![class("d", "example.com/p", "Immediate", true)],
        ..Model::default()
    };
    let steps = of_claim(&model(), &object(&claim(&json!({}))));
    let [Step::Write(Part::Claim, body)] = steps.as_slice() else {
        panic!("{steps:?}");
    };
    assert_eq!(body["spec"]["storageClassName"], "d");
    let steps = of_claim(&model(), &object(&claim(&json!({"storageClassName": ""}))));
    assert!(matches!(
        steps[0],
        Step::Event {
            reason: "FailedBinding",
            ..
        }
    ));
}

#[test]
fn volume_of_a_claim_that_has_gone_is_kept_or_told_that_nobody_deletes_it() {
    let volume = |policy: &str| {
        json!({"metadata": {"name": "v", "uid": "v", "resourceVersion": "1"},
            "spec": {"persistentVolumeReclaimPolicy": policy, "claimRef": {"namespace": "ns", "name": "c", "uid": "u"}},
            "status": {"phase": "Bound"}})
    };
    for (policy, phases, event) in [
        ("Retain", ["Released", ""], None),
        (
            "Recycle",
            ["Released", "Failed"],
            Some("Warning VolumeFailedRecycle"),
        ),
        (
            "Delete",
            ["Released", "Failed"],
            Some("Warning VolumeFailedDelete"),
        ),
    ] {
        let mut model = Model {
            volumes: vec![volume(policy)],
            ..Model::default()
        };
        let steps = of_volume(&model, &object(&model.volumes[0]));
        let phase = |step: &Step| match step {
            Step::Write(Part::VolumeStatus, body) => body["status"]["phase"].as_str().map(str::to_owned),
            _ => None,
        };
        let written: Vec<_> = steps.iter().filter_map(phase).collect();
        let expected: Vec<_> = phases.into_iter().filter(|own| !own.is_empty()).collect();
        assert_eq!(written, expected, "{policy}");
        model.apply(steps);
        assert_eq!(model.events.first().map(String::as_str), event, "{policy}");
    }
}
