//! Validation of a changed pod.

use super::{annotations, whole};
use crate::shared::validation::{Errors, Path};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_meta::syntax;
use machinery_schema::Ref;
use std::collections::{HashMap, HashSet};

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
        annotations::validate(&mut errors, &Path::of("metadata").child("annotations"), pod);
        annotations::changed(&mut errors, pod, old);
        return errors.into_list();
    }
    whole(&mut errors, pod);
    annotations::changed(&mut errors, pod, old);
    for list in ["containers", "initContainers"] {
        if new_spec.list(list).len() != old_spec.list(list).len() {
            errors.forbidden(&path.child(list), "pod updates may not add or remove containers");
            return errors.into_list();
        }
    }
    if !deadline(&mut errors, &path, new_spec, old_spec) {
        return errors.into_list();
    }
    added_tolerations(&mut errors, &path, new_spec, old_spec);
    removed_gates(&mut errors, &path, new_spec, old_spec);
    if old_spec.list("schedulingGates").len() > 0 {
        narrowed(&mut errors, &path, new_spec, old_spec);
    }
    if fixed_part(new_spec, old_spec) != fixed_part(old_spec, old_spec) {
        errors.forbidden(&path, FIXED);
    }
    errors.into_list()
}

/// Every problem of a change of the ephemeral containers: new ones may come, those that are there stay as they are.
pub fn validate_ephemeral(pod: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if old
        .at(&["metadata", "annotations", annotations::MIRROR])
        .is_some()
    {
        errors.forbidden(&Path::of("[]"), "static pods do not support ephemeral containers");
        return errors.into_list();
    }
    whole(&mut errors, pod);
    annotations::changed(&mut errors, pod, old);
    let (Some(spec), Some(old_spec)) = (pod.get("spec"), old.get("spec")) else {
        return errors.into_list();
    };
    let path = Path::of("spec");
    let path = path.child("ephemeralContainers");
    let mut now = HashMap::new();
    for container in spec.list("ephemeralContainers") {
        now.entry(container.str("name")).or_insert(container);
    }
    for before in old_spec.list("ephemeralContainers") {
        let name = before.str("name");
        let what = match now.get(name) {
            None => "removed",
            Some(now) if *now != before => "changed",
            Some(_) => continue,
        };
        let detail = format!("existing ephemeral containers {name:?} may not be {what}\n");
        errors.forbidden(&path, &detail);
    }
    errors.into_list()
}

/// The deadline may come and shrink, never grow or go. Says whether upstream looks further.
fn deadline(errors: &mut Errors, path: &Path<'_>, new: Ref<'_>, old: Ref<'_>) -> bool {
    const MAX: i64 = i32::MAX as i64;
    let seconds = |spec: Ref<'_>| spec.get("activeDeadlineSeconds").and_then(Ref::as_i64);
    let at = path.child("activeDeadlineSeconds");
    match (seconds(new), seconds(old)) {
        (Some(new), _) if !(0..=MAX).contains(&new) => {
            errors.invalid(&at, new, syntax::inclusive_range(0, MAX));
            return false;
        }
        (Some(new), Some(old)) if new > old => {
            errors.invalid(&at, new, "must be less than or equal to previous value");
            return false;
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            errors.invalid(&at, Shown("null".into()), detail);
        }
        _ => {}
    }
    true
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

fn shown(value: Option<Ref<'_>>) -> Shown {
    Shown(value.map_or_else(|| "null".into(), Ref::to_json))
}

/// A gated pod's choice of nodes may still shrink.
fn narrowed(errors: &mut Errors, path: &Path<'_>, new: Ref<'_>, old: Ref<'_>) {
    let mut selector = old.get("nodeSelector").into_iter().flat_map(Ref::entries);
    let kept = |key: &str| new.at(&["nodeSelector", key]).and_then(Ref::as_str);
    if selector.any(|(key, value)| kept(key) != value.as_str()) {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.invalid(
            &path.child("nodeSelector"),
            shown(new.get("nodeSelector")),
            detail,
        );
    }
    let place = ["affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms"];
    if let Some(old) = old.at(&place).filter(|terms| !terms.is_empty()) {
        let name = place.join(".");
        narrowed_terms(errors, &path.child(&name), new.at(&place), old);
    }
}

fn narrowed_terms(errors: &mut Errors, path: &Path<'_>, new: Option<Ref<'_>>, old: Ref<'_>) {
    let Some(terms) = new.filter(|new| new.len() == old.len()) else {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return errors.invalid(path, shown(new), detail);
    };
    for (index, (new, old)) in terms.items().zip(old.items()).enumerate() {
        if !only_adds(new, old) {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.invalid(&path.index(index), shown(Some(new)), detail);
        }
    }
}

/// Reports whether a term has its former requirements, and perhaps more; a term without any matches nothing, and must stay so.
fn only_adds(new: Ref<'_>, old: Ref<'_>) -> bool {
    let lists = ["matchExpressions", "matchFields"];
    let nothing = |term: Ref<'_>| lists.iter().all(|list| term.list(list).len() == 0);
    let begins = |list: &str| {
        let kept = new.list(list).zip(old.list(list)).all(|(new, old)| new == old);
        kept && new.list(list).len() >= old.list(list).len()
    };
    if nothing(old) {
        nothing(new)
    } else {
        lists.iter().all(|list| begins(list))
    }
}

/// Every old toleration stays (its seconds may change), new ones may come.
fn added_tolerations(errors: &mut Errors, path: &Path<'_>, new: Ref<'_>, old: Ref<'_>) {
    fn fixed(toleration: Ref<'_>) -> [&str; 4] {
        ["key", "operator", "value", "effect"].map(|name| toleration.str(name))
    }
    let kept: HashSet<[&str; 4]> = new.list("tolerations").map(fixed).collect();
    for toleration in old.list("tolerations") {
        if !kept.contains(&fixed(toleration)) {
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
    let before: HashSet<&str> = old.list("schedulingGates").map(|gate| gate.str("name")).collect();
    for (index, gate) in new.list("schedulingGates").enumerate() {
        let name = gate.str("name");
        if !before.contains(name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(&at.index(index).child("name"), &detail);
        }
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
        tree.remove(&["nodeSelector"]);
        tree.remove(&["affinity", "nodeAffinity"]);
        if tree.get("affinity").is_some_and(Ref::is_empty) {
            tree.remove(&["affinity"]);
        }
    }
    for list in ["containers", "initContainers"] {
        tree.with(&[list], |mut list| {
            list.each_item(|mut container| container.set("image", ""))
        });
    }
    tree.root().to_json()
}
