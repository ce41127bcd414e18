//! Validation of ValidatingAdmissionPolicyBindings.

use crate::kinds::admissionregistration::policies::binding;
use crate::kinds::admissionregistration::rules::texts;
use crate::kinds::admissionregistration::static_names;
use crate::shared::validation::{Errors, Path};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_schema::Ref;
use std::collections::HashSet;

const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];

/// Every problem of a new binding.
pub(super) fn create(binding: Ref<'_>) -> Vec<FieldError> {
    let mut errors = whole(binding);
    static_names::created(&mut errors, binding);
    errors.into_list()
}

/// Every problem of a changed binding.
pub(super) fn update(binding: Ref<'_>, _: Ref<'_>) -> Vec<FieldError> {
    whole(binding).into_list()
}

fn whole(object: Ref<'_>) -> Errors {
    let mut errors = Errors::new();
    let path = Path::of("spec");
    match object.get("spec") {
        None => errors.required(&path, ""),
        Some(spec) => {
            binding(&mut errors, &path, spec);
            actions(&mut errors, &path.child("validationActions"), spec);
        }
    }
    errors
}

fn actions(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let all = texts(spec, "validationActions");
    let mut seen = HashSet::new();
    for (index, own) in all.iter().enumerate() {
        let at = path.index(index);
        if !ACTIONS.contains(own) {
            errors.not_supported(&at, *own, &ACTIONS);
        }
        if !seen.insert(*own) {
            errors.duplicate(&at, *own);
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let shown = spec
            .get("validationActions")
            .map(Ref::to_json)
            .unwrap_or_default();
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        errors.invalid(path, Shown(shown), detail);
    }
    if seen.is_empty() {
        errors.required(path, "");
    }
}
