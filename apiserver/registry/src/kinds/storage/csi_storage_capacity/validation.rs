//! Validation of CSIStorageCapacities.

use crate::shared::validation::{Errors, Path, dns_subdomain, immutable, label_selector, present, quantity};
use machinery_meta::FieldError;
use machinery_schema::Ref;

/// Every problem of a new capacity.
pub(super) fn validate(capacity: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if let Some(topology) = present(capacity, "nodeTopology") {
        label_selector(&mut errors, &Path::of("nodeTopology"), topology);
    }
    let class = capacity.str("storageClassName");
    dns_subdomain(&mut errors, &Path::of("storageClassName"), class);
    let room = capacity.get("capacity").and_then(quantity);
    if let Some(room) = room.filter(|room| room.is_negative()) {
        let detail = "must be greater than or equal to 0";
        errors.invalid(&Path::of("capacity"), room.to_string(), detail);
    }
    errors.into_list()
}

/// Every problem of a changed capacity: the room was requested with two of its members.
pub(super) fn validate_update(capacity: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    errors.extend(validate(capacity));
    for member in ["nodeTopology", "storageClassName"] {
        let is_set = |own: &Ref<'_>| own.as_str() != Some("") || member != "storageClassName";
        let (new, old) = (capacity.get(member), present(old, member).filter(is_set));
        let new = new.filter(|own| !own.is_null());
        immutable(&mut errors, &Path::of(member), new, old, "field is immutable");
    }
    errors.into_list()
}
