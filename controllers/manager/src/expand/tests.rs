//! Upstream's table of the expander (`expand_controller_test.go` of 1.37, TestSyncHandler), as claims and volumes with the step.

use super::plan::{Step, of_claim};
use crate::volume_binder::views::{ClaimView, VolumeView};
use machinery_client::Object;
use machinery_client::object::object_of;
use serde_json::{Value, json};

fn claim(request: &str, capacity: &str) -> Object<ClaimView> {
    let claim = json!({
        "metadata": {"namespace": "default", "name": "test-pvc", "uid": "123"},
        "spec": {"volumeName": "test-pv", "resources": {"requests": {"storage": request}}},
        "status": {"phase": "Bound", "capacity": {"storage": capacity}}
    });
    object_of(&claim.to_string()).unwrap()
}

fn volume(source: &Value, uid: &str, annotations: &Value) -> Object<VolumeView> {
    let mut spec = source.clone();
    spec["claimRef"] = json!({"namespace": "default", "name": "test-pvc", "uid": uid});
    let volume = json!({"metadata": {"name": "test-pv", "annotations": annotations}, "spec": spec});
    object_of(&volume.to_string()).unwrap()
}

#[track_caller]
fn check(claim: &Object<ClaimView>, source: &Value, expected: Step) {
    let volume = volume(source, "123", &json!({}));
    assert_eq!(of_claim(claim, Some(&volume)), Ok(expected));
}

#[test]
fn claims_that_ask_for_more_wait_for_whom_upstream_names() {
    let grown = claim("20Gi", "10Gi");
    let ebs = json!({"awsElasticBlockStore": {"volumeID": "v"}});
    let migrated = || Step::Migrate {
        plugin: "kubernetes.io/aws-ebs",
        driver: "ebs.csi.aws.com",
    };
    check(&grown, &ebs, migrated());
    check(
        &grown,
        &json!({"csi": {"driver": "d", "volumeHandle": "h"}}),
        Step::Wait,
    );
    for source in ["hostPath", "local", "nfs", "fc", "iscsi"] {
        check(&grown, &json!({source: {}}), Step::Wait);
    }
    check(&claim("10Gi", "10Gi"), &ebs, Step::Nothing);
    check(&claim("5Gi", "10Gi"), &ebs, Step::Nothing);
    let resized = json!({"volume.alpha.kubernetes.io/pre-resize-capacity": "5Gi"});
    let before = volume(&ebs, "123", &resized);
    assert_eq!(of_claim(&claim("10Gi", "10Gi"), Some(&before)), Ok(migrated()));
}

#[test]
fn claims_of_other_volumes_are_errors() {
    let grown = claim("20Gi", "10Gi");
    let other = volume(
        &json!({"csi": {"driver": "d", "volumeHandle": "h"}}),
        "other",
        &json!({}),
    );
    let why = "persistent Volume is not bound to PVC being updated : default/test-pvc";
    assert_eq!(of_claim(&grown, Some(&other)), Err(why.to_owned()));
    assert!(of_claim(&grown, None).is_err());
}
