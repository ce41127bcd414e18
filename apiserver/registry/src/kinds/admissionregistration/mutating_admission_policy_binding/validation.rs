//! Validation of MutatingAdmissionPolicyBindings.

use crate::kinds::admissionregistration::policies::{binding, mutating_operations};
use crate::kinds::admissionregistration::static_names;
use crate::shared::validation::{Errors, Path, present};
use machinery_meta::FieldError;
use machinery_schema::Ref;

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
    let Some(spec) = object.get("spec") else {
        errors.required(&path, "");
        return errors;
    };
    binding(&mut errors, &path, spec);
    if let Some(own) = present(spec, "matchResources") {
        mutating_operations(&mut errors, &path.child("matchResources"), own);
    }
    errors
}
