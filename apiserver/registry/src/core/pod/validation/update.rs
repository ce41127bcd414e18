//! What may change in a pod that exists.

use super::{MIRROR, of_annotations, whole};
use crate::validation::{Errors, Path};
use machinery_meta::FieldError;
use machinery_schema::Ref;

const FIXED: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n";

/// Every problem of a change to the pod itself.
pub fn validate(pod: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("spec");
    let (Some(new_spec), Some(old_spec)) = (pod.get("spec"), old.get("spec")) else {
        return Vec::new();
    };
    if new_spec == old_spec {
        // A spec that is as it was was looked at when it came.
        of_annotations(&mut errors, pod);
        annotation_changes(&mut errors, pod, old);
        return errors.into_list();
    }
    whole(&mut errors, pod);
    annotation_changes(&mut errors, pod, old);
    for list in ["containers", "initContainers"] {
        if new_spec.list(list).len() != old_spec.list(list).len() {
            errors.forbidden(&path.child(list), "pod updates may not add or remove containers");
            return errors.into_list();
        }
    }
    deadline(&mut errors, &path, new_spec, old_spec);
    added_tolerations(&mut errors, &path, new_spec, old_spec);
    removed_gates(&mut errors, &path, new_spec, old_spec);
    if fixed_part(new_spec, old_spec) != fixed_part(old_spec, old_spec) {
        errors.forbidden(&path, FIXED);
    }
    errors.into_list()
}

/// What a pod says of where it comes from stays as it is.
pub(super) fn annotation_changes(errors: &mut Errors, pod: Ref<'_>, old: Ref<'_>) {
    let path = Path::of("metadata");
    let path = path.child("annotations");
    let fixed = |key: &str| {
        if key.starts_with(APP_ARMOR) {
            Some("AppArmor annotations")
        } else {
            (key == MIRROR).then_some("mirror pod annotation")
        }
    };
    let annotations = |object| Ref::at(object, &["metadata", "annotations"]);
    let (new, before) = (annotations(pod), annotations(old));
    for (from, to, what) in [(before, new, "remove or update"), (new, before, "add")] {
        for (key, value) in from.into_iter().flat_map(Ref::entries) {
            let other = to.and_then(|annotations: Ref<'_>| annotations.get(key));
            let touched = if what == "add" {
                other.is_none()
            } else {
                other != Some(value)
            };
            if let Some(name) = fixed(key).filter(|_| touched) {
                errors.forbidden(&path.key(key), &format!("may not {what} {name}"));
            }
        }
    }
    of_annotations(errors, pod);
}

/// Annotations of profiles for single containers begin so.
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Every problem of a change of the ephemeral containers: new ones may come, those that are there stay as they are.
pub fn validate_ephemeral(pod: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    whole(&mut errors, pod);
    let (Some(spec), Some(old_spec)) = (pod.get("spec"), old.get("spec")) else {
        return errors.into_list();
    };
    let path = Path::of("spec");
    let path = path.child("ephemeralContainers");
    for before in old_spec.list("ephemeralContainers") {
        let name = before.str("name");
        let now = spec
            .list("ephemeralContainers")
            .find(|container| container.str("name") == name);
        let what = match now {
            None => "removed",
            Some(now) if now != before => "changed",
            Some(_) => continue,
        };
        let detail = format!("existing ephemeral containers {name:?} may not be {what}\n");
        errors.forbidden(&path, &detail);
    }
    errors.into_list()
}

/// The deadline may come and shrink, never grow or go.
fn deadline(errors: &mut Errors, path: &Path<'_>, new: Ref<'_>, old: Ref<'_>) {
    let seconds = |spec: Ref<'_>| spec.get("activeDeadlineSeconds").and_then(Ref::as_i64);
    let at = path.child("activeDeadlineSeconds");
    match (seconds(new), seconds(old)) {
        (Some(new), Some(old)) if new > old => {
            errors.invalid(&at, new, "must be less than or equal to previous value");
        }
        (None, Some(old)) => {
            errors.invalid(&at, old, "must not update from a positive integer to nil value");
        }
        _ => {}
    }
}

/// Every old toleration stays (its seconds may change), new ones may come.
fn added_tolerations(errors: &mut Errors, path: &Path<'_>, new: Ref<'_>, old: Ref<'_>) {
    let same = |a: Ref<'_>, b: Ref<'_>| {
        ["key", "operator", "value", "effect"]
            .iter()
            .all(|name| a.str(name) == b.str(name))
    };
    for toleration in old.list("tolerations") {
        if !new.list("tolerations").any(|other| same(other, toleration)) {
            errors.forbidden(
                &path.child("tolerations"),
                "existing toleration can not be modified except its tolerationSeconds",
            );
        }
    }
}

/// Scheduling gates only go, and none come.
fn removed_gates(errors: &mut Errors, path: &Path<'_>, new: Ref<'_>, old: Ref<'_>) {
    let at = path.child("schedulingGates");
    let is_old = |name: &str| old.list("schedulingGates").any(|gate| gate.str("name") == name);
    let added: Vec<&str> = new
        .list("schedulingGates")
        .map(|gate| gate.str("name"))
        .filter(|name| !is_old(name))
        .collect();
    if !added.is_empty() {
        let detail = format!(
            "only deletion is allowed, but found new scheduling gates '{}'",
            added.join(", ")
        );
        errors.forbidden(&at, &detail);
    }
}

/// The spec as text with everything that may change taken from `old` or left out.
fn fixed_part(spec: Ref<'_>, old: Ref<'_>) -> String {
    let mut tree = spec.to_tree();
    for name in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        tree.remove(&[name]);
    }
    let grace = |spec: Ref<'_>| spec.get("terminationGracePeriodSeconds").and_then(Ref::as_i64);
    if grace(old).is_some_and(|seconds| seconds < 0) && grace(spec) == Some(1) {
        tree.remove(&["terminationGracePeriodSeconds"]);
    }
    // A gated pod may still narrow where it goes.
    if old.list("schedulingGates").len() > 0 {
        for name in ["nodeSelector", "affinity"] {
            tree.remove(&[name]);
        }
    }
    for list in ["containers", "initContainers"] {
        tree.with(&[list], |mut list| {
            list.each_item(|mut container| container.set("image", ""))
        });
    }
    tree.root().to_json()
}
