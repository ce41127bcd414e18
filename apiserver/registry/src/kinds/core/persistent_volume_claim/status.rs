//! Validation of a claim's status.

use crate::shared::validation::{Errors, Path, is_native_resource, quantity};
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;

/// Ways in which a growth stands, in the order of messages.
const RESIZES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

/// Every problem of a changed status: amounts are none below zero, and those of the storage.
pub(super) fn validate(claim: Ref<'_>, _old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let Some(status) = claim.get("status") else {
        return Vec::new();
    };
    let path = Path::of("status");
    let entries = |name: &str| status.get(name).into_iter().flat_map(Ref::entries);
    let capacity = path.child("capacity");
    for (name, value) in entries("capacity") {
        amount(&mut errors, &capacity.key(name), value);
    }
    let resizes = path.child("allocatedResourceStatuses");
    for (name, value) in entries("allocatedResourceStatuses") {
        resource(&mut errors, &resizes, name);
        if !RESIZES.contains(&value.as_str().unwrap_or_default()) {
            errors.not_supported(&resizes, name, &RESIZES);
        }
    }
    let allocated = path.child("allocatedResources");
    for (name, value) in entries("allocatedResources") {
        if resource(&mut errors, &allocated, name) {
            amount(&mut errors, &allocated.key(name), value);
        }
    }
    errors.into_list()
}

fn amount(errors: &mut Errors, path: &Path<'_>, value: Ref<'_>) {
    if let Some(units) = quantity(value)
        .map(|amount| amount.units())
        .filter(|units| *units < 0)
    {
        errors.invalid(path, units, "must be a valid resource quantity");
    }
}

/// A claim has storage, and what a driver calls its own. Says whether the name is such.
fn resource(errors: &mut Errors, path: &Path<'_>, name: &str) -> bool {
    let problems = syntax::qualified_name(name);
    let (is_name, is_other) = (problems.is_empty(), is_native_resource(name) && name != "storage");
    errors.all_invalid(path, name, problems);
    if is_name && is_other {
        errors.not_supported(path, name, &["storage"]);
    }
    is_name && !is_other
}
