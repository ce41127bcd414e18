//! Validation of the status of FlowSchemas and PriorityLevelConfigurations.

use crate::validation::{Errors, Path};
use machinery_meta::FieldError;
use machinery_schema::Ref;
use std::collections::BTreeSet;

/// Problems of the status of either kind.
pub(crate) fn validate_status(object: Ref<'_>, _: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let Some(status) = object.get("status") else {
        return Vec::new();
    };
    let status_path = Path::of("status");
    let path = status_path.child("conditions");
    let mut seen = BTreeSet::new();
    for (index, condition) in status.list("conditions").enumerate() {
        let (item, kind) = (path.index(index), condition.str("type"));
        if !seen.insert(kind) {
            errors.duplicate(&item.child("type"), kind);
        }
        if kind.is_empty() {
            errors.required(&item.child("type"), "");
        }
    }
    errors.into_list()
}
