//! Validation of StorageClasses.

use super::topologies;
use crate::kinds::storage::parameters::{driver, parameters};
use crate::shared::validation::{Errors, Path, present};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_schema::Ref;

/// Every problem of a new StorageClass.
pub fn validate_class(class: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    parameters(&mut errors, class, false);
    for (name, supported, may_be_empty) in [
        ("reclaimPolicy", ["Delete", "Retain"], true),
        ("volumeBindingMode", ["Immediate", "WaitForFirstConsumer"], false),
    ] {
        let value = present(class, name).and_then(Ref::as_str);
        let value = value.filter(|value| !(may_be_empty && value.is_empty()));
        if let Some(value) = value.filter(|value| !supported.contains(value)) {
            errors.not_supported(&Path::of(name), value, &supported);
        }
    }
    topologies::validate(&mut errors, class);
    driver(&mut errors, class, "provisioner");
    errors.into_list()
}

/// Every problem of a changed class; volumes were created with its members.
pub fn validate_class_update(class: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    errors.extend(validate_class(class));
    for name in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        let of = |object: Ref<'_>| present(object, name).map(Ref::to_json);
        if of(class) != of(old) {
            let detail = "field is immutable";
            errors.invalid(&Path::of(name), Shown("null".to_owned()), detail);
        }
    }
    errors.into_list()
}
