//! Validation that workloads with a pod template share: an immutable selector, and a template that it matches.

use crate::kinds::core::pod::validation as pod;
use crate::shared::validation::{
    Errors, Path, immutable, label_selector, parse_workload_selector, present, template_labels_match,
};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_schema::Ref;

/// Upstream's names of a kind in error messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Named {
    pub(super) in_selector: &'static str,
    pub(super) in_template: &'static str,
    /// The message for an unreadable selector, after which the template is not validated. `None`: no message, and the
    /// template is validated.
    pub(super) unreadable: Option<&'static str>,
}

/// The rules of a spec.
pub(super) type SpecRules = fn(&mut Errors, &Path<'_>, Ref<'_>);

/// Every problem of a new object.
pub(super) fn validate(object: Ref<'_>, rules: SpecRules) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if let Some(spec) = object.get("spec") {
        rules(&mut errors, &Path::of("spec"), spec);
    }
    errors.into_list()
}

/// The members of the spec that are as they were made.
pub(super) fn fixed(object: Ref<'_>, old: Ref<'_>, names: &[&str]) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("spec");
    for name in names {
        let (new, was) = (object.at(&["spec", name]), old.at(&["spec", name]));
        immutable(&mut errors, &path.child(name), new, was, "field is immutable");
    }
    errors.into_list()
}

/// A selector that must be there.
pub(super) fn required_selector(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, named: Named) {
    if present(spec, "selector").is_none() {
        errors.required(&path.child("selector"), "");
    }
    selector(errors, path, spec, named);
}

/// A selector is readable and selects something in particular.
pub(super) fn selector(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, named: Named) {
    let Some(selector) = present(spec, "selector") else {
        return;
    };
    let at = path.child("selector");
    label_selector(errors, &at, selector);
    if selector.is_empty() {
        let detail = format!("empty selector is invalid for {}", named.in_selector);
        errors.invalid(&at, Shown(selector.to_json()), detail);
    }
}

/// The template of pods that are all alike and run for ever.
pub(super) fn template(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, template: Ref<'_>, named: Named) {
    let at = path.child("template");
    let selector = present(spec, "selector");
    match (parse_workload_selector(selector), selector, named.unreadable) {
        (Some(parsed), ..) if parsed.is_everything() => {}
        (Some(parsed), ..) => template_labels_match(errors, &at, &parsed, template),
        (None, Some(selector), Some(detail)) => {
            return errors.invalid(&path.child("selector"), Shown(selector.to_json()), detail);
        }
        (None, ..) => {}
    }
    pod::validate_template(errors, &at, template);
    pod::runs_for_ever(errors, &at, template, named.in_template);
}
