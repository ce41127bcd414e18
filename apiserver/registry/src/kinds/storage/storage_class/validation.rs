//! Validation of StorageClasses.

use crate::shared::validation::{Errors, Path, immutable};
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;

/// Every problem of a new StorageClass.
pub fn validate_class(class: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if class.at(&["parameters", ""]).is_some() {
        errors.invalid(&Path::of("parameters"), "", "field can not be empty.");
    }
    for (name, supported) in [
        ("reclaimPolicy", ["Delete", "Retain"]),
        ("volumeBindingMode", ["Immediate", "WaitForFirstConsumer"]),
    ] {
        let value = class.str(name);
        if !value.is_empty() && !supported.contains(&value) {
            errors.not_supported(&Path::of(name), value, &supported);
        }
    }
    let provisioner = class.str("provisioner");
    if provisioner.is_empty() {
        errors.required(&Path::of("provisioner"), "");
    } else {
        let problems = syntax::qualified_name(&provisioner.to_lowercase());
        errors.all_invalid(&Path::of("provisioner"), provisioner, problems);
    }
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
