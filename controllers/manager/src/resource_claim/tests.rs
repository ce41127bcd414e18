//! Upstream's table of the controller (`controller_test.go` of 1.37, TestSyncHandler) without PodGroups, whose gate is off:
//! each case as what is decided, by its name there.

use super::keys_of_pod;
use super::new_claim::{new_claim, prefix};
use super::plan::{
    ClaimPlan, ClaimRef, FINALIZER, Noted, PodStep, Verdict, by_pod_claim, is_to_be_reserved, judge,
    of_claim, of_pod,
};
use super::reconcile::Key;
use super::view::DeviceClaimView;
use crate::views::PodView;
use machinery_client::object::object_of;
use machinery_client::{Change, Object};
use serde_json::{Value, json};
use std::sync::Arc;

const CLAIM: &str = "test-pod-acme-resource-1";

fn object<P: machinery_client::Projection>(json: &Value) -> Object<P> {
    object_of(&json.to_string()).unwrap()
}

/// A pod with one claim from a template, changed so.
fn pod(change: &Value) -> Object<PodView> {
    let mut pod = json!({"metadata": {"name": "test-pod", "namespace": "my-namespace", "uid": "uidpod1"},
        "spec": {"resourceClaims": [{"name": "acme-resource", "resourceClaimTemplateName": "my-template"}]}, "status": {}});
    merge(&mut pod, change);
    object(&pod)
}

fn merge(into: &mut Value, change: &Value) {
    let Some(fields) = change.as_object() else {
        return;
    };
    for (name, value) in fields {
        if value.is_object() && into[name].is_object() {
            merge(&mut into[name], value);
        } else {
            into[name] = value.clone();
        }
    }
}

fn noted() -> Value {
    json!({"status": {"resourceClaimStatuses": [{"name": "acme-resource", "resourceClaimName": CLAIM}]}})
}

/// A claim that was made for the pod with this uid.
fn claim_value(owner: &str, change: &Value) -> Value {
    let mut claim = json!({"metadata": {"name": CLAIM, "namespace": "my-namespace", "uid": "c", "resourceVersion": "7",
        "annotations": {"resource.kubernetes.io/pod-claim-name": "acme-resource"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "test-pod", "uid": owner, "controller": true}]},
        "spec": {}, "status": {}});
    merge(&mut claim, change);
    claim
}

fn claim(owner: &str) -> ClaimRef {
    Arc::new(object::<DeviceClaimView>(&claim_value(owner, &json!({}))))
}

#[track_caller]
fn check_pod(case: &str, change: &Value, noted: Noted<'_>, owned: &[ClaimRef], expected: &PodStep) {
    let pod = pod(change);
    let claims = pod.device_claims.clone().unwrap();
    let owned = by_pod_claim(owned.iter().cloned());
    assert_eq!(
        of_pod(&pod, &claims.claims[0], noted, &owned),
        *expected,
        "{case}"
    );
}

/// The API server writes the requests of `spec: {}` as null, as upstream's does.
#[test]
fn claim_without_requests_is_read() {
    let written = claim_value(
        "uidpod1",
        &json!({"spec": {"devices": {"requests": null}}, "status": {"reservedFor": null}}),
    );
    let claim = object::<DeviceClaimView>(&written);
    assert!(!claim.has_admin_access && claim.reserved_for.is_empty());
}

#[test]
fn claims_of_pods_are_made_as_upstreams() {
    let (made, none) = (PodStep::Create("my-template".into()), json!({}));
    let own = Noted::OwnedBy("uidpod1");
    check_pod("create", &none, Noted::Unknown, &[], &made);
    check_pod("nop", &noted(), own, &[claim("uidpod1")], &PodStep::Nothing);
    check_pod(
        "nop-claim-in-apiserver-only",
        &noted(),
        Noted::Unknown,
        &[],
        &PodStep::Ask(CLAIM.into()),
    );
    check_pod(
        "nop-claim-in-apiserver-only",
        &noted(),
        own,
        &[],
        &PodStep::Nothing,
    );
    check_pod("recreate", &noted(), Noted::Gone, &[], &made);
    check_pod(
        "recreate-wrong-owner",
        &noted(),
        Noted::OwnedBy("other"),
        &[],
        &made,
    );
    let found = PodStep::Note(CLAIM.to_owned());
    check_pod(
        "find-existing-claim-by-label",
        &none,
        Noted::Unknown,
        &[claim("uidpod1")],
        &found,
    );
    let other = claim_value(
        "uidpod1",
        &json!({"metadata": {"annotations": {"resource.kubernetes.io/pod-claim-name": "x"}}}),
    );
    let other = [Arc::new(object::<DeviceClaimView>(&other))];
    check_pod("create-with-other-claim", &none, Noted::Unknown, &other, &made);
    let not_needed = json!({"status": {"resourceClaimStatuses": [{"name": "acme-resource"}]}});
    check_pod(
        "a claim that is not needed",
        &not_needed,
        Noted::Unknown,
        &[],
        &PodStep::Nothing,
    );
    let named = json!({"spec": {"resourceClaims": [{"name": "acme-resource", "resourceClaimName": "mine"}]}});
    check_pod(
        "a claim of the user's",
        &named,
        Noted::Unknown,
        &[],
        &PodStep::Nothing,
    );
    let unknown = json!({"spec": {"resourceClaims": [{"name": "acme-resource"}]}});
    check_pod(
        "a source of a later release",
        &unknown,
        Noted::Unknown,
        &[],
        &PodStep::Unsupported,
    );
    assert!(
        pod(&json!({"spec": {"resourceClaims": []}}))
            .device_claims
            .is_none(),
        "no-volumes"
    );
}

#[test]
fn claim_says_for_which_pod_it_was_made() {
    let template = json!({"spec": {"metadata": {"labels": {"a": "b"}, "annotations": {"example.com/color": "blue"}},
        "spec": {"devices": {"requests": [{"name": "gpu"}]}}}});
    let pod = pod(&json!({}));
    let made = new_claim(
        &pod.header,
        "acme-resource",
        &template,
        (CLAIM, "test-pod-acme-resource-"),
    );
    let meta = &made["metadata"];
    let annotations =
        json!({"example.com/color": "blue", "resource.kubernetes.io/pod-claim-name": "acme-resource"});
    assert_eq!(
        (&meta["annotations"], &meta["labels"]),
        (&annotations, &json!({"a": "b"}))
    );
    assert_eq!(meta["ownerReferences"][0]["uid"], "uidpod1");
    assert_eq!(made["spec"], template["spec"]["spec"]);
    assert_eq!(prefix("test-pod", "acme-resource"), "test-pod-acme-resource-");
    let long = prefix(&"p".repeat(60), &"c".repeat(20));
    assert_eq!(long, format!("{}-{}", "p".repeat(41), "c".repeat(13)));
}

/// A claim that is allocated and reserved for these pods.
fn reserved(pods: &[&str], change: &Value) -> Value {
    let reserved: Vec<Value> = pods
        .iter()
        .map(|uid| json!({"resource": "pods", "name": "test-pod", "uid": uid}))
        .collect();
    let mut claim = claim_value(
        "uidpod1",
        &json!({"metadata": {"finalizers": [FINALIZER]},
        "status": {"allocation": {"devices": {}}, "reservedFor": reserved}}),
    );
    merge(&mut claim, change);
    claim
}

#[track_caller]
fn check_claim(
    case: &str,
    claim: &Value,
    stays: &[bool],
    owner: Option<&Object<PodView>>,
    expected: &ClaimPlan,
) {
    let view = object::<DeviceClaimView>(claim);
    assert_eq!(of_claim(&view, claim, stays, owner), *expected, "{case}");
}

#[test]
fn claims_are_freed_as_upstreams() {
    let (none, nothing) = (json!({}), ClaimPlan::default());
    let running = pod(&json!({"spec": {"nodeName": "worker"}, "status": {"phase": "Running"}}));
    let done = pod(&json!({"status": {"phase": "Succeeded"}}));
    let plan = |status: Value, delete: bool| ClaimPlan {
        remove_finalizer: status.get("allocation").is_none(),
        status: Some(status),
        delete,
    };
    check_claim(
        "stay-reserved-seen",
        &reserved(&["uidpod1"], &none),
        &[true],
        Some(&running),
        &nothing,
    );
    check_claim(
        "clear-reserved-structured",
        &reserved(&["uidpod1"], &none),
        &[false],
        None,
        &plan(json!({}), false),
    );
    let foreign = reserved(&["uidpod1"], &json!({"metadata": {"finalizers": []}}));
    let kept = ClaimPlan {
        status: Some(json!({"allocation": {"devices": {}}})),
        ..ClaimPlan::default()
    };
    check_claim("dont-clear-reserved-structured", &foreign, &[false], None, &kept);
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    check_claim(
        "clear-reserved-structured-deleted",
        &reserved(&["uidpod1"], &deleted),
        &[false],
        None,
        &plan(json!({}), false),
    );
    let mut unreserved = reserved(&[], &deleted);
    check_claim(
        "structured-deleted",
        &unreserved,
        &[],
        None,
        &plan(json!({"reservedFor": []}), false),
    );
    unreserved["status"] = json!({});
    let bare = ClaimPlan {
        remove_finalizer: true,
        ..ClaimPlan::default()
    };
    check_claim("structured-deleted, not allocated", &unreserved, &[], None, &bare);
    check_claim(
        "clear-reserved-when-done",
        &reserved(&["uidpod1"], &none),
        &[false],
        Some(&done),
        &plan(json!({}), true),
    );
    let twice = reserved(&["uidpod1", "uidpod1-II"], &none);
    let rest = json!({"allocation": {"devices": {}}, "reservedFor": [{"resource": "pods", "name": "test-pod", "uid": "uidpod1"}]});
    check_claim(
        "remove-reserved",
        &twice,
        &[true, false],
        Some(&running),
        &plan(rest, false),
    );
    let unused = claim_value("uidpod1", &none);
    let delete = ClaimPlan {
        delete: true,
        ..ClaimPlan::default()
    };
    check_claim("delete-claim-when-done", &unused, &[], Some(&done), &delete);
    check_claim(
        "the owner has been replaced",
        &claim_value("old", &none),
        &[],
        Some(&running),
        &delete,
    );
    check_claim("the owner is not known", &unused, &[], None, &nothing);
    check_claim("the owner may run", &unused, &[], Some(&running), &nothing);
}

#[test]
fn consumers_stay_until_they_are_certainly_done() {
    let view = object::<DeviceClaimView>(&reserved(&["uidpod1"], &json!({})));
    let own = &view.reserved_for[0];
    let running = pod(&json!({"spec": {"nodeName": "worker"}}));
    assert_eq!(judge(own, Some(&running)), Verdict::Stays);
    assert_eq!(judge(own, None), Verdict::Ask, "stay-reserved-not-seen");
    assert_eq!(
        judge(own, Some(&pod(&json!({"metadata": {"uid": "new"}})))),
        Verdict::Goes
    );
    assert_eq!(
        judge(own, Some(&pod(&json!({"status": {"phase": "Failed"}})))),
        Verdict::Goes
    );
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    assert_eq!(judge(own, Some(&pod(&deleted))), Verdict::Goes, "never scheduled");
    let mut other = own.clone();
    other.api_group = "example.com".into();
    assert_eq!(
        judge(&other, None),
        Verdict::Stays,
        "remove-pod-reservation-with-non-pod-reservation-present"
    );
    assert!(!is_to_be_reserved(&running, &view));
    let free = object::<DeviceClaimView>(&reserved(&[], &json!({})));
    assert!(is_to_be_reserved(&running, &free), "add-reserved");
    assert!(!is_to_be_reserved(&running, &claim("uidpod1")), "not allocated");
}

#[track_caller]
fn check_keys(old: Option<&Value>, new: Option<&Value>, expected: &[&str]) {
    let side = |change: &Value| Arc::new(pod(change));
    let change = Change {
        old: old.map(side),
        new: new.map(side),
    };
    let named = keys_of_pod(&change).into_iter().map(|key| match key {
        Key::Pod(key) => format!("pod:{}", key.name),
        Key::Claim(key) => format!("claim:{}", key.name),
    });
    assert_eq!(named.collect::<Vec<_>>(), expected);
}

/// Upstream's TestEnqueue of pods.
#[test]
fn pods_wake_themselves_and_the_claims_they_leave() {
    let extended = json!({"spec": {"resourceClaims": []}, "status": {"extendedResourceClaimStatus": {"resourceClaimName": "x"}}});
    check_keys(None, Some(&json!({})), &["pod:test-pod"]);
    check_keys(Some(&noted()), None, &["claim:test-pod-acme-resource-1"]);
    let mut done = noted();
    done["status"]["phase"] = json!("Succeeded");
    check_keys(
        None,
        Some(&done),
        &["claim:test-pod-acme-resource-1", "pod:test-pod"],
    );
    let mut ended = extended.clone();
    ended["status"]["phase"] = json!("Failed");
    check_keys(None, Some(&ended), &["claim:x", "pod:test-pod"]);
    check_keys(None, Some(&json!({"spec": {"resourceClaims": []}})), &[]);
}
