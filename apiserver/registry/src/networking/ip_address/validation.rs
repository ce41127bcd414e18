//! What makes an IPAddress acceptable (upstream's `pkg/apis/networking/validation`).

use crate::validation::{Errors, Path, immutable, present};
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
                } else if name != "namespace" {
                    errors.required(&path.child(name), "");
                }
            }
        }
    }
    errors.into_list()
}

/// Its parent cannot change.
pub fn validate_update(new: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let parent = |own: Ref<'_>| {
        own.get("spec")
            .and_then(|spec| present(spec, "parentRef").map(Ref::to_tree))
    };
    let (new, old) = (parent(new), parent(old));
    immutable(
        &mut errors,
        &Path::of("spec").child("parentRef"),
        new.as_ref().map(|tree| tree.root()),
        old.as_ref().map(|tree| tree.root()),
        "field is immutable",
    );
    errors.into_list()
}
