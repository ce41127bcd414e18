//! Validation of a resize: a change of the resources of a pod and of its containers.

use std::collections::BTreeMap;

use super::whole;
use crate::kinds::core::pod::qos;
use crate::kinds::core::pod::resize::{LISTS, names};

use crate::shared::validation::{Errors, Path, present, quantity};
use machinery_meta::{FieldError, Quantity};
use machinery_schema::Ref;

const KINDS: [&str; 2] = ["requests", "limits"];
const ONLY: &str = "only cpu and memory resources are mutable";
const ONLY_INIT: &str = "only cpu and memory resources for init or sidecar containers are mutable";
const NO_RESTART: &str =
    "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";

/// Every problem of it. Fields that a resize cannot change have been put back before.
pub fn validate(pod: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    whole(&mut errors, pod);
    let path = Path::of("spec");
    let class = old.str_at(&["status", "qosClass"]);
    if qos::class(pod) != class {
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.invalid(&path, class, detail);
    }
    let (Some(spec), Some(old_spec)) = (pod.get("spec"), old.get("spec")) else {
        return errors.into_list();
    };
    if !is_supported(old) {
        errors.forbidden(&path, "Pod running on node without support for resize");
    }
    whole_pod(&mut errors, &path, spec, old_spec);
    let before = errors.len();
    LISTS
        .iter()
        .for_each(|list| order(&mut errors, &path, list, spec, old_spec));
    if errors.len() == before {
        // Upstream's order: what is removed, of init containers first, then what is changed.
        for list in LISTS.iter().rev() {
            each(&path, list, spec, old_spec, |path, new, old| {
                removed(&mut errors, &path.child("resources"), "resource", new, old);
            });
        }
        each(&path, "containers", spec, old_spec, |_, new, old| {
            if differs(new, old) {
                errors.forbidden(&path, ONLY);
            }
        });
        each(&path, "initContainers", spec, old_spec, |path, new, old| {
            init_container(&mut errors, path, new, old);
        });
    }
    errors.into_list()
}

fn init_container(errors: &mut Errors, path: &Path<'_>, new: Ref<'_>, old: Ref<'_>) {
    if differs(new, old) {
        errors.forbidden(path, ONLY_INIT);
    }
    if new.str("restartPolicy") != "Always" && new != old {
        let restarts = |policy: &Ref<'_>| policy.str("restartPolicy") == "RestartContainer";
        for _ in new.list("resizePolicy").filter(restarts) {
            errors.forbidden(path, NO_RESTART);
        }
    }
}

fn each<'a>(
    path: &Path<'_>,
    list: &str,
    spec: Ref<'a>,
    old: Ref<'a>,
    mut look: impl FnMut(&Path<'_>, Ref<'a>, Ref<'a>),
) {
    let at = path.child(list);
    for (index, (new, old)) in spec.list(list).zip(old.list(list)).enumerate() {
        look(&at.index(index), new, old);
    }
}

/// An agent that can resize says what its running containers may use.
fn is_supported(pod: Ref<'_>) -> bool {
    let statuses = pod.get("status").into_iter();
    let running = statuses
        .flat_map(|status| status.list("containerStatuses"))
        .find(|status| status.at(&["state", "running"]).is_some());
    running.is_none_or(|status| present(status, "resources").is_some())
}

/// The resources of the pod as a whole.
fn whole_pod(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, old: Ref<'_>) {
    let Some(new) = present(spec, "resources") else {
        return;
    };
    removed(errors, &path.child("resources"), "pod-level resource", spec, old);
    let is_set = KINDS
        .iter()
        .any(|kind| new.get(kind).is_some_and(|list| !list.is_empty()));
    if is_set && differs(spec, old) {
        errors.forbidden(path, "only cpu and memory resources are mutable at pod-level");
    }
}

fn order(errors: &mut Errors, path: &Path<'_>, list: &str, spec: Ref<'_>, old: Ref<'_>) {
    let at = path.child(list);
    if spec.list(list).len() != old.list(list).len() {
        errors.forbidden(&at, &format!("{list} may not be added or removed on resize"));
        return;
    }
    for (index, (new, old)) in names(spec, list).zip(names(old, list)).enumerate() {
        if new != old {
            let detail = format!("{list} may not be renamed or reordered on resize");
            errors.forbidden(&at.index(index).child("name"), &detail);
        }
    }
}

/// Requests and limits stay, whatever their amount.
fn removed(errors: &mut Errors, path: &Path<'_>, what: &str, new: Ref<'_>, old: Ref<'_>) {
    for kind in KINDS {
        let list = |of: Ref<'_>| amounts(of, kind, |_| true);
        let new = list(new);
        if list(old).keys().any(|name| !new.contains_key(name)) {
            let detail = format!("{what} {kind} cannot be removed");
            errors.forbidden(&path.child(kind), &detail);
        }
    }
}

/// Reports whether anything but processor and memory differs in the members that a resize sends.
fn differs(new: Ref<'_>, old: Ref<'_>) -> bool {
    let fixed = |name: &str| !matches!(name, "cpu" | "memory");
    let other = |of: Ref<'_>| KINDS.map(|kind| amounts(of, kind, fixed));
    let claims = |of: Ref<'_>| of.at(&["resources", "claims"]).map(Ref::to_json);
    let policy = |of: Ref<'_>| of.get("resizePolicy").map(Ref::to_json);
    other(new) != other(old) || claims(new) != claims(old) || policy(new) != policy(old)
}

fn amounts(of: Ref<'_>, kind: &str, wanted: impl Fn(&str) -> bool) -> BTreeMap<String, Option<Quantity>> {
    let list = of.at(&["resources", kind]).into_iter().flat_map(Ref::entries);
    list.filter(|(name, _)| wanted(name))
        .map(|(name, amount)| (name.to_string(), quantity(amount)))
        .collect()
}
