//! Validation of VolumeAttributesClasses.

use crate::kinds::storage::parameters::{driver, parameters};
use crate::shared::validation::{Errors, Path};
use machinery_meta::FieldError;
use machinery_schema::Ref;

/// Every problem of a new class.
pub(super) fn validate(class: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    driver(&mut errors, class, "driverName");
    parameters(&mut errors, class, true);
    errors.into_list()
}

/// Volumes have the parameters that their class had.
pub(super) fn validate_update(class: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    for member in ["driverName", "parameters"] {
        if class.get(member) != old.get(member) {
            let detail = format!("updates to {member} are forbidden.");
            errors.forbidden(&Path::of(member), &detail);
        }
    }
    errors.extend(validate(class));
    errors.into_list()
}
