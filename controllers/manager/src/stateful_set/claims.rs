//! Claims of pods: what is made of claim templates, and their owners under the retention policy.
//!
//! A claim goes with its owner: with the set where `whenDeleted` is `Delete`, with a pod that is one too many where
//! `whenScaled` is.

use super::KIND;
use super::identity::{claim_name, is_in_range};
use crate::views::StatefulSetView;
use crate::views::template::OwnerReference;
use machinery_client::Object;
use machinery_meta::{ObjectHeader, OwnerRef};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashSet};

/// A pod as claims know it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClaimUser<'a> {
    pub(super) name: &'a str,
    /// Empty for a pod that is still to be made.
    pub(super) uid: &'a str,
    pub(super) ordinal: i32,
}

/// The names of templates, in their order.
pub(super) fn names(templates: &[Value]) -> impl Iterator<Item = &str> {
    templates
        .iter()
        .map(|template| template["metadata"]["name"].as_str().unwrap_or(""))
}

/// The claim of a pod that is made of this template. The labels of the set's selector win over the template's own; the owner
/// that the retention policy wants for a pod in its place is on the claim from the beginning.
///
/// It is made when it is sent: all claims of a set together may be as large as its labels times its templates.
pub(super) fn claim(
    set: &Object<StatefulSetView>,
    template: &Value,
    name: &str,
    match_labels: &BTreeMap<String, String>,
    ordinal: i32,
) -> Value {
    let mut claim = template.clone();
    claim["apiVersion"] = json!("v1");
    claim["kind"] = json!("PersistentVolumeClaim");
    let meta = &mut claim["metadata"];
    meta["name"] = json!(name);
    meta["namespace"] = json!(set.namespace());
    if !match_labels.is_empty() {
        let mut labels = match meta["labels"].take() {
            Value::Object(labels) => labels,
            _ => Map::new(),
        };
        labels.extend(
            match_labels
                .iter()
                .map(|(key, value)| (key.clone(), json!(value))),
        );
        meta["labels"] = Value::Object(labels);
    }
    if set.retention.delete_when_deleted && is_in_range(set, ordinal) {
        meta["ownerReferences"] = json!([OwnerReference::controller("apps/v1", KIND, &set.header)]);
    }
    claim
}

/// The volumes of a pod: one for each claim, then those of its template that have no claim's name.
pub(super) fn volumes(set: &str, templates: &[Value], ordinal: i32, own: &[Value]) -> Vec<Value> {
    let bound = |name: &str| {
        let claim = claim_name(name, set, ordinal.into());
        json!({"name": name, "persistentVolumeClaim": {"claimName": claim}})
    };
    let taken: HashSet<&str> = names(templates).collect();
    let others = own
        .iter()
        .filter(|volume| volume["name"].as_str().is_none_or(|name| !taken.contains(name)));
    names(templates).map(bound).chain(others.cloned()).collect()
}

/// Reports whether the owners of a claim are those that the retention policy requires. Owners that are an earlier set
/// or pod of the name are left to the garbage collector.
pub(super) fn is_owned_rightly(
    set: &Object<StatefulSetView>,
    pod: ClaimUser<'_>,
    owners: &[OwnerRef],
) -> bool {
    if is_stale(owners, pod) || is_of_earlier_set(owners, set) {
        return true;
    }
    let (by_set, by_pod) = (owned(owners, &set.uid().0), owned(owners, pod.uid));
    if has_other_controller(owners, set, pod) {
        return !by_set && !by_pod;
    }
    let ours = |owner: &&OwnerRef| owner.uid == *set.uid() || owner.uid.0 == pod.uid;
    if owners.iter().filter(ours).any(|owner| !owner.controller) {
        return false;
    }
    (by_set, by_pod) == wanted(set, pod)
}

/// The owner references that a claim is to have, made of those it has; others' stay as they are.
pub(super) fn owner_references(
    set: &Object<StatefulSetView>,
    pod: ClaimUser<'_>,
    header: &ObjectHeader,
    written: &[Value],
) -> Vec<Value> {
    let is_ours = |owner: &Value| {
        let of = |version: &str, kind: &str, name: &str| {
            owner["apiVersion"] == version && owner["kind"] == kind && owner["name"] == name
        };
        of("apps/v1", KIND, set.name()) || of("v1", "Pod", pod.name)
    };
    let mut owners: Vec<_> = written.iter().filter(|owner| !is_ours(owner)).cloned().collect();
    if has_other_controller(&header.owners, set, pod) {
        return owners;
    }
    let (by_set, by_pod) = wanted(set, pod);
    if by_set && !owners.iter().any(|owner| owner["uid"] == *set.uid().0) {
        owners.push(json!(OwnerReference::controller("apps/v1", KIND, &set.header)));
    }
    if by_pod && !owners.iter().any(|owner| owner["uid"] == *pod.uid) {
        owners.push(json!({
            "apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid,
            "controller": true, "blockOwnerDeletion": true,
        }));
    }
    owners
}

/// Reports whether a claim belongs to an earlier pod of the name: it is about to go, and a new pod must not begin with
/// it.
pub(super) fn is_stale(owners: &[OwnerRef], pod: ClaimUser<'_>) -> bool {
    let of_name = owners.iter().find(|owner| is(owner, "v1", "Pod", pod.name));
    of_name.is_some_and(|owner| owner.uid.0 != pod.uid)
}

/// Reports whether a claim whose policy is to delete it has another controller: neither this set nor this pod.
pub(super) fn has_other_controller(
    owners: &[OwnerRef],
    set: &Object<StatefulSetView>,
    pod: ClaimUser<'_>,
) -> bool {
    if set.retention == Default::default() {
        return false;
    }
    owners.iter().any(|owner| {
        if is(owner, "apps/v1", KIND, set.name()) {
            owner.uid != *set.uid()
        } else if is(owner, "v1", "Pod", pod.name) {
            owner.uid.0 != pod.uid
        } else {
            owner.controller
        }
    })
}

/// Wanted owners of the pod's claims: true for the set, true for the pod.
fn wanted(set: &Object<StatefulSetView>, pod: ClaimUser<'_>) -> (bool, bool) {
    let retention = set.retention;
    let by_pod = retention.delete_when_scaled && !is_in_range(set, pod.ordinal);
    (retention.delete_when_deleted && !by_pod, by_pod)
}

fn is_of_earlier_set(owners: &[OwnerRef], set: &Object<StatefulSetView>) -> bool {
    let of_name = owners.iter().find(|owner| is(owner, "apps/v1", KIND, set.name()));
    of_name.is_some_and(|owner| owner.uid != *set.uid())
}

fn is(owner: &OwnerRef, version: &str, kind: &str, name: &str) -> bool {
    &*owner.api_version == version && &*owner.kind == kind && &*owner.name == name
}

fn owned(owners: &[OwnerRef], uid: &str) -> bool {
    owners.iter().any(|owner| owner.uid.0 == uid)
}

/// Reports whether the pod's volumes have all of these, by name and claim.
pub(super) fn has_volumes(own: &[Value], wanted: &[Value]) -> bool {
    fn claim(volume: &Value) -> (&Value, Option<&str>) {
        let claim = volume.pointer("/persistentVolumeClaim/claimName");
        (&volume["name"], claim.and_then(Value::as_str))
    }
    let there: HashSet<_> = own.iter().map(claim).collect();
    wanted.iter().all(|volume| there.contains(&claim(volume)))
}

/// A pod spec with its volumes, as it is to be created.
pub(super) fn with_volumes(
    mut spec: Map<String, Value>,
    set: &str,
    templates: &[Value],
    ordinal: i32,
) -> Value {
    if !templates.is_empty() {
        let own = spec.get("volumes").and_then(Value::as_array).cloned();
        let volumes = volumes(set, templates, ordinal, &own.unwrap_or_default());
        spec.insert("volumes".to_owned(), Value::Array(volumes));
    }
    Value::Object(spec)
}
