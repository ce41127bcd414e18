//! Validation of IPAddresses (upstream's `pkg/apis/networking/validation`).

use crate::shared::validation::{Errors, Path, present};
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;

/// Every problem of a new one; its name is checked as a name.
pub fn validate(address: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = Path::of("spec");
    let path = spec.child("parentRef");
    match address.get("spec").and_then(|own| present(own, "parentRef")) {
        None => errors.required(&path, ""),
        Some(parent) => {
            let group = parent.str("group");
            if !group.is_empty() {
                errors.all_invalid(&path.child("group"), group, syntax::dns1123_subdomain(group));
            }
            for name in ["resource", "name", "namespace"] {
                let value = parent.str(name);
                if !value.is_empty() {
                    errors.all_invalid(&path.child(name), value, syntax::path_segment_name(value));
                }
            }
            // Upstream declares these, and reports last what is declared.
            for name in ["resource", "name"] {
                if parent.str(name).is_empty() {
                    errors.required(&path.child(name), "");
                }
            }
        }
    }
    errors.into_list()
}

/// Its parent cannot change; upstream shows no value.
pub fn validate_update(new: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    errors.extend(validate(new));
    let parent = |own: Ref<'_>| {
        own.get("spec")
            .and_then(|spec| present(spec, "parentRef").map(Ref::to_json))
    };
    if parent(new) != parent(old) {
        let path = Path::of("spec");
        errors.invalid(
            &path.child("parentRef"),
            Shown("null".into()),
            "field is immutable",
        );
    }
    errors.into_list()
}
