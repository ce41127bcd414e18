//! Validation of a changed Job: a started job's template is immutable; of a suspended one's, scheduling and resources
//! may change.

use super::validation::{selector, validate_name, validate_spec};
use crate::shared::validation::{Errors, Path, immutable, present};
use machinery_meta::FieldError;
use machinery_schema::Ref;

const IMMUTABLE: &str = "field is immutable";

/// Every problem of a changed Job.
pub(crate) fn validate(job: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("spec");
    let (Some(spec), Some(old_spec)) = (job.get("spec"), old.get("spec")) else {
        return Vec::new();
    };
    validate_spec(&mut errors, &path, spec);
    selector(&mut errors, &path, spec);
    completions(&mut errors, &path, spec, old_spec);
    let fixed = |names: &[&str], errors: &mut Errors| {
        for name in names {
            let (new, was) = (present(spec, name), present(old_spec, name));
            immutable(errors, &path.child(name), new, was, IMMUTABLE);
        }
    };
    fixed(&["selector"], &mut errors);
    template(&mut errors, &path, spec, old);
    let rest = [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ];
    fixed(&rest, &mut errors);
    validate_name(&mut errors, job);
    errors.into_list()
}

/// An indexed job may change its size, when completions and parallelism go together.
fn completions(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, old: Ref<'_>) {
    let at = path.child("completions");
    let number = |spec: Ref<'_>, name| present(spec, name).and_then(Ref::as_i64);
    let new = number(spec, "completions");
    if spec.str("completionMode") != "Indexed" {
        let (new, was) = (present(spec, "completions"), present(old, "completions"));
        return immutable(errors, &at, new, was, IMMUTABLE);
    }
    if let Some(new) = new.filter(|_| new != number(old, "completions") && new != number(spec, "parallelism"))
    {
        errors.invalid(&at, new, "can only be modified in tandem with spec.parallelism");
    }
}

fn template(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, old: Ref<'_>) {
    let (new, was) = (spec.get("template"), old.at(&["spec", "template"]));
    let at = path.child("template");
    if !waits(old) {
        return immutable(errors, &at, new, was, IMMUTABLE);
    }
    if fixed_part(new) != fixed_part(was) {
        let shown = new
            .and_then(|template| template.get("spec"))
            .map_or_else(|| "null".into(), Ref::to_json);
        errors.invalid(&at.child("spec"), machinery_meta::field::Shown(shown), IMMUTABLE);
    }
}

/// Reports whether the Job is suspended and none of its pods runs.
fn waits(job: Ref<'_>) -> bool {
    let said = super::status::condition(job, "Suspended");
    let never_started = job
        .get("status")
        .is_none_or(|status| present(status, "startTime").is_none());
    let active = job
        .at(&["status", "active"])
        .and_then(Ref::as_i64)
        .unwrap_or_default();
    let suspended = job.at(&["spec", "suspend"]).and_then(Ref::as_bool) == Some(true);
    suspended && (never_started || said) && active == 0
}

/// A template's spec as text, without what may change while a job waits.
fn fixed_part(template: Option<Ref<'_>>) -> Option<String> {
    let mut tree = template?.to_tree();
    for name in ["nodeSelector", "tolerations", "schedulingGates"] {
        tree.remove(&["spec", name]);
    }
    tree.remove(&["spec", "affinity", "nodeAffinity"]);
    if tree.at(&["spec", "affinity"]).is_some_and(Ref::is_empty) {
        tree.remove(&["spec", "affinity"]);
    }
    for list in ["containers", "initContainers"] {
        tree.with(&["spec", list], |mut list| {
            list.each_item(|mut container| {
                container.remove("resources");
            });
        });
    }
    tree.get("spec").map(Ref::to_json)
}
