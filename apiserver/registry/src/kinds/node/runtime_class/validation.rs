//! Validation of RuntimeClasses.

use crate::shared::validation::{Errors, Path, immutable};
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;

/// Every problem of a new RuntimeClass.
pub(crate) fn validate_runtime_class(class: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let handler = class.str("handler");
    if handler.is_empty() {
        errors.required(&Path::of("handler"), "");
    } else {
        errors.all_invalid(&Path::of("handler"), handler, syntax::dns1123_label(handler));
    }
    errors.into_list()
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
