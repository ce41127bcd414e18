//! Upstream's table of the controller (`controller_test.go` of 1.37, TestSyncHandler), but for the case whose create fails.

use super::plan::{Step, of_pod};
use serde_json::{Value, json};

const POD: &str = "test-pod";

fn pod(volumes: Value) -> Value {
    json!({"metadata": {"name": POD, "namespace": "my-namespace", "uid": "uidpod1"}, "spec": {"volumes": volumes}})
}

fn with_ephemeral() -> Value {
    let template = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}});
    pod(json!([
        {"name": "plain", "emptyDir": {}},
        {"name": "ephemeral-volume", "ephemeral": {"volumeClaimTemplate": template}}]))
}

/// Claims that are there, with the uids of their controllers.
#[track_caller]
fn check(pod: &Value, claims: &[(&str, &str)], expected: &[Result<&str, &str>]) {
    let owner = |name: &str| {
        let own = claims.iter().find(|(own, _)| *own == name);
        own.map(|(_, uid)| (*uid).to_owned())
    };
    let steps = of_pod(pod, owner);
    let found = steps.iter().map(|step| match step {
        Step::Create { claim, .. } => Ok(claim["metadata"]["name"].as_str().unwrap()),
        Step::Refuse { why, .. } => Err(why.as_str()),
    });
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn claims_are_made_as_upstreams() {
    let name = "test-pod-ephemeral-volume";
    check(&with_ephemeral(), &[], &[Ok(name)]);
    check(&with_ephemeral(), &[("another", "")], &[Ok(name)]);
    check(&with_ephemeral(), &[(name, "uidpod1")], &[]);
    check(&pod(json!([])), &[], &[]);
    let why = "PVC my-namespace/test-pod-ephemeral-volume was not created for pod my-namespace/test-pod (pod is not owner)";
    check(&with_ephemeral(), &[(name, "")], &[Err(why)]);
    check(&with_ephemeral(), &[(name, "of another pod")], &[Err(why)]);
}

#[test]
fn claim_has_what_its_template_says_and_belongs_to_its_pod() {
    let steps = of_pod(&with_ephemeral(), |_| None);
    let [Step::Create { volume, claim }] = &steps[..] else {
        panic!("{steps:?}")
    };
    assert_eq!(volume, "ephemeral-volume");
    let expected = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "test-pod-ephemeral-volume", "namespace": "my-namespace",
            "labels": {"a": "b"}, "annotations": {"c": "d"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": POD, "uid": "uidpod1",
                "controller": true, "blockOwnerDeletion": true}]},
        "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}
    });
    assert_eq!(*claim, expected);
}
