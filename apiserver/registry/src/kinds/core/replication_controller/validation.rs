//! Validation of ReplicationControllers.

use crate::kinds::core::pod::validation as pod;
use crate::shared::validation::{Errors, Path, non_negative, present, template_labels_match};
use machinery_meta::{FieldError, LabelSelector};
use machinery_schema::Ref;

/// Every problem of a ReplicationController, new or changed.
pub fn validate(controller: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("spec");
    let Some(spec) = controller.get("spec") else {
        return Vec::new();
    };
    let pairs = spec.get("selector").into_iter().flat_map(Ref::entries);
    let selector =
        LabelSelector::from_pairs(pairs.map(|(key, value)| (key, value.as_str().unwrap_or_default())));
    if selector.is_everything() {
        errors.required(&path.child("selector"), "");
    }
    let at = path.child("template");
    match present(spec, "template") {
        None => errors.required(&at, ""),
        Some(template) => {
            if !selector.is_everything() {
                template_labels_match(&mut errors, &at, &selector, template);
            }
            pod::validate_template(&mut errors, &at, template);
            pod::runs_for_ever(&mut errors, &at, template, "ReplicationController");
        }
    }
    for name in ["replicas", "minReadySeconds"] {
        non_negative(&mut errors, &path, spec, name);
    }
    errors.into_list()
}
