//! Validation of an autoscaler's status.

use crate::shared::validation::{Errors, Path, non_negative};
use machinery_meta::FieldError;
use machinery_schema::Ref;

/// Numbers that are counted are none below zero.
pub(super) fn validate(autoscaler: Ref<'_>, _old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let Some(status) = autoscaler.get("status") else {
        return Vec::new();
    };
    let path = Path::of("status");
    let conditions = path.child("conditions");
    for (index, condition) in status.list("conditions").enumerate() {
        non_negative(
            &mut errors,
            &conditions.index(index),
            condition,
            "observedGeneration",
        );
    }
    for name in ["currentReplicas", "desiredReplicas"] {
        non_negative(&mut errors, &path, status, name);
    }
    errors.into_list()
}
