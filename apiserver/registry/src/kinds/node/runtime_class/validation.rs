//! Validation of RuntimeClasses.

use crate::kinds::core::pod::validation::{resources, scheduling};
use crate::shared::validation::{Errors, Path, immutable, labels, present};
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;
use std::collections::HashSet;

/// Every problem of a new RuntimeClass.
pub(crate) fn validate_runtime_class(class: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let handler = class.str("handler");
    if handler.is_empty() {
        errors.required(&Path::of("handler"), "");
    } else {
        errors.all_invalid(&Path::of("handler"), handler, syntax::dns1123_label(handler));
    }
    if let Some(overhead) = class.at(&["overhead", "podFixed"]) {
        resources::overhead(&mut errors, &Path::of("overhead"), overhead);
    }
    if let Some(scheduling) = present(class, "scheduling") {
        validate_scheduling(&mut errors, &Path::of("scheduling"), scheduling);
    }
    errors.into_list()
}

/// Validates what pods of the class get from it.
fn validate_scheduling(errors: &mut Errors, path: &Path<'_>, own: Ref<'_>) {
    labels(errors, &path.child("nodeSelector"), own.get("nodeSelector"));
    let tolerations = path.child("tolerations");
    scheduling::tolerations(errors, &tolerations, own);
    let mut seen = HashSet::new();
    for (index, toleration) in own.list("tolerations").enumerate() {
        let key = ["key", "operator", "value", "effect"].map(|name| toleration.str(name));
        if !seen.insert(key) {
            errors.duplicate(&tolerations.index(index), Shown(toleration.to_json()));
        }
    }
}

/// Pods were started with the handler.
pub(crate) fn validate_runtime_class_update(class: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let at = Path::of("handler");
    immutable(
        &mut errors,
        &at,
        class.get("handler"),
        old.get("handler"),
        "field is immutable",
    );
    errors.into_list()
}
