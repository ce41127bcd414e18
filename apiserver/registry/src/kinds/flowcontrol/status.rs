//! Validation of the status of FlowSchemas and PriorityLevelConfigurations.

use crate::engine::context::RequestContext;
use crate::engine::metadata;
use crate::engine::strategy::ObjectPart;
use crate::shared::validation::{Errors, Path};
use machinery_meta::FieldError;
use machinery_schema::{Ref, Tree};
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

/// Keeps what an update of the status may not change.
pub(crate) fn keep(_ctx: &RequestContext, part: ObjectPart, object: &mut Tree, old: &Tree) {
    if part == ObjectPart::Status {
        metadata::restore_for_status(object, old);
        metadata::restore_field(object, old, metadata::GRACE);
    }
}
