//! Claims that get a volume, what the volume is, and when it goes.

use super::plan::{End, Folder, end_of, is_ours, made_here, node_of, problem, volume};
use crate::volume_binder::views::{ClaimView, ClassView, VolumeView};
use machinery_client::object::object_of;
use serde_json::{Value, json};

fn claim() -> Value {
    json!({"metadata": {"name": "data", "namespace": "ns", "uid": "u-1", "resourceVersion": "7", "annotations": {
            "volume.kubernetes.io/storage-provisioner": "knarr/local-path",
            "volume.kubernetes.io/selected-node": "n1"}},
        "spec": {"storageClassName": "local-path", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}})
}

fn class() -> Value {
    json!({"metadata": {"name": "local-path", "uid": "c", "resourceVersion": "1"}, "provisioner": "knarr/local-path",
        "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer"})
}

fn with(mut object: Value, path: &str, value: Value) -> Value {
    let (parent, name) = path.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[name] = value;
    object
}

#[test]
fn claims_that_call_the_provisioner_are_ours() {
    let ours = |claim: &Value| is_ours(&object_of::<ClaimView>(&claim.to_string()).unwrap());
    assert!(ours(&claim()));
    let called = "/metadata/annotations/volume.kubernetes.io~1storage-provisioner";
    let mut other = claim();
    *other.pointer_mut(called).unwrap() = json!("example.com/p");
    assert!(!ours(&other));
    assert!(!ours(&with(claim(), "/spec/volumeName", json!("v"))));
    let deleting = json!("2026-01-01T00:00:00Z");
    assert!(!ours(&with(claim(), "/metadata/deletionTimestamp", deleting)));
}

#[test]
fn claim_gets_its_volume_on_the_selected_node() {
    let node = |claim: &Value, class: Option<&Value>| {
        let claim = object_of::<ClaimView>(&claim.to_string()).unwrap();
        let class = class.map(|class| object_of::<ClassView>(&class.to_string()).unwrap());
        let class = class.as_ref().map(|class| &class.projection);
        node_of(&claim, class).map(|node| node.map(str::to_owned))
    };
    assert_eq!(node(&claim(), Some(&class())), Ok(Some("n1".to_owned())));
    let mut waits = claim();
    waits["metadata"]["annotations"] = json!({});
    assert_eq!(node(&waits, Some(&class())), Ok(None));
    let immediate = with(class(), "/volumeBindingMode", json!("Immediate"));
    assert!(node(&waits, Some(&immediate)).is_err());
    // A tenant's annotation does not turn a claim of another class into ours.
    let other = with(class(), "/provisioner", json!("example.com/p"));
    assert!(node(&claim(), Some(&other)).is_err());
    assert!(node(&claim(), None).is_err());
}

#[track_caller]
fn check_problem(claim: &Value, class: &Value, expected: Option<&str>) {
    assert_eq!(problem(claim, class).as_deref(), expected);
}

#[test]
fn claims_of_what_folders_cannot_give_are_refused() {
    check_problem(&claim(), &class(), None);
    let many = with(
        claim(),
        "/spec/accessModes",
        json!(["ReadWriteOnce", "ReadWriteMany"]),
    );
    let why = "access mode ReadWriteMany is not supported, ReadWriteOnce and ReadWriteOncePod are";
    check_problem(&many, &class(), Some(why));
    let block = with(claim(), "/spec/volumeMode", json!("Block"));
    check_problem(&block, &class(), Some("block volumes are not supported"));
    let selector = with(claim(), "/spec/selector", json!({}));
    check_problem(&selector, &class(), Some("claim.Spec.Selector is not supported"));
    let copy = with(
        claim(),
        "/spec/dataSource",
        json!({"kind": "PersistentVolumeClaim", "name": "a"}),
    );
    check_problem(&copy, &class(), Some("data sources are not supported"));
    let path = with(class(), "/parameters", json!({"nodePath": "/etc"}));
    check_problem(&claim(), &path, Some("parameters of the class are not supported"));
}

fn made() -> Value {
    let folder = Folder {
        node: "n1",
        host_name: "host-1",
        path: "/data/local-volumes/pvc-u-1",
    };
    volume(&claim(), &class(), folder)
}

#[test]
fn volume_is_the_claims_and_of_its_node() {
    let expected = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": "pvc-u-1", "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer"],
            "annotations": {"pv.kubernetes.io/provisioned-by": "knarr/local-path", "knarr/node": "n1"}},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "local-path", "volumeMode": "Filesystem",
            "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "ns", "name": "data",
                "uid": "u-1", "resourceVersion": "7"},
            "local": {"path": "/data/local-volumes/pvc-u-1"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions":
                [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["host-1"]}]}]}}
        }
    });
    assert_eq!(made(), expected);
}

#[track_caller]
fn check_end(phase: &str, policy: &str, deleting: bool, expected: End) {
    let mut volume = made();
    volume["status"] = json!({"phase": phase});
    volume["spec"]["persistentVolumeReclaimPolicy"] = json!(policy);
    volume["metadata"]["uid"] = json!("v");
    volume["metadata"]["resourceVersion"] = json!("1");
    if deleting {
        volume["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    let found = end_of(&volume);
    assert_eq!(found, expected, "{phase} {policy} {deleting}");
    let view = object_of::<VolumeView>(&volume.to_string()).unwrap();
    assert!(found == End::Stays || made_here(&view), "it is looked at");
    volume["metadata"]["annotations"] = json!({"pv.kubernetes.io/provisioned-by": "example.com/p"});
    assert_eq!(end_of(&volume), End::Stays, "another's");
}

#[test]
fn folder_goes_with_its_claim_and_not_before() {
    check_end("Bound", "Delete", false, End::Stays);
    check_end("Bound", "Delete", true, End::Stays);
    check_end("Released", "Delete", false, End::Removed);
    check_end("Failed", "Delete", false, End::Removed);
    check_end("Released", "Retain", false, End::Stays);
    check_end("Released", "Retain", true, End::LetGo);
    check_end("Available", "Delete", false, End::Stays);
    check_end("Available", "Delete", true, End::Removed);
}
