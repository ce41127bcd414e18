//! What makes a ReplicaSet acceptable, and the template that Deployments share with it.

use crate::core::pod::validation as pod;
use crate::validation::{
    Errors, Path, immutable, label_selector, non_negative, parse_label_selector, present,
    template_labels_match,
};
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, LabelSelector};
use machinery_schema::Ref;

/// Every problem of a ReplicaSet.
pub fn validate(set: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if let Some(spec) = set.get("spec") {
        validate_spec(&mut errors, &Path::of("spec"), spec);
    }
    errors.into_list()
}

/// Every problem of a change: those of the new one, and the selector stays.
pub fn validate_update(set: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("spec");
    if let Some(spec) = set.get("spec") {
        validate_spec(&mut errors, &path, spec);
    }
    let selector = |object: Ref<'_>| object.at(&["spec", "selector"]).map(Ref::to_json);
    if selector(set) != selector(old) {
        let (new, old) = (set.at(&["spec", "selector"]), old.at(&["spec", "selector"]));
        immutable(
            &mut errors,
            &path.child("selector"),
            new,
            old,
            "field is immutable",
        );
    }
    errors.into_list()
}

fn validate_spec(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    non_negative(errors, path, spec, "replicas");
    non_negative(errors, path, spec, "minReadySeconds");
    let selector_path = path.child("selector");
    match present(spec, "selector") {
        None => errors.required(&selector_path, ""),
        Some(selector) => {
            label_selector(errors, &selector_path, selector);
            if selector.is_empty() {
                let detail = "empty selector is invalid for deployment";
                errors.invalid(&selector_path, Shown(selector.to_json()), detail);
            }
        }
    }
    validate_template(errors, path, spec);
}

/// The template of a workload whose pods are all alike and run for ever.
pub fn validate_template(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let at = path.child("template");
    let Some(template) = spec.get("template") else {
        errors.required(&at, "");
        return;
    };
    let selector = present(spec, "selector");
    // An absent selector matches nothing; one that cannot be read has been reported already.
    let matched = match parse_label_selector(selector) {
        Some(selector) if !selector.is_everything() => Some(selector),
        None if selector.is_none() => Some(nothing()),
        _ => None,
    };
    if let Some(selector) = matched {
        template_labels_match(errors, &at, &selector, template);
    }
    pod::validate_template(errors, &at, template);
    pod::runs_for_ever(errors, &at, template, "ReplicaSet");
}

/// A selector that no labels satisfy.
fn nothing() -> LabelSelector {
    LabelSelector::parse("a,!a").expect("the grammar allows it")
}
