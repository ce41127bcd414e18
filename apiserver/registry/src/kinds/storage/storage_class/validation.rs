//! Validation of StorageClasses.

use super::topologies;
use crate::kinds::storage::parameters::{driver, parameters};
use crate::shared::validation::{Errors, Path, immutable, present};
use machinery_meta::FieldError;
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

/// Refuses changes of the members that volumes were created with.
pub fn validate_class_update(class: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let text = |object: Ref<'_>, name: &str| object.get(name).map(Ref::to_json);
    if text(class, "parameters") != text(old, "parameters") {
        let detail = "updates to parameters are forbidden.";
        errors.forbidden(&Path::of("parameters"), detail);
    }
    if class.str("provisioner") != old.str("provisioner") {
        let detail = "updates to provisioner are forbidden.";
        errors.forbidden(&Path::of("provisioner"), detail);
    }
    for name in ["reclaimPolicy", "volumeBindingMode"] {
        let at = Path::of(name);
        immutable(
            &mut errors,
            &at,
            class.get(name),
            old.get(name),
            "field is immutable",
        );
    }
    errors.into_list()
}
