//! Validation of PersistentVolumeClaims.

use super::data_source;
use crate::shared::validation::{Errors, Path, dns_subdomain, label_selector, present};
use machinery_meta::{FieldError, Quantity};
use machinery_schema::Ref;

/// Access modes of volumes, in the order of messages.
pub const ACCESS_MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];
pub const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];

/// Every problem of a new claim.
pub fn validate(claim: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if let Some(spec) = claim.get("spec") {
        validate_spec(&mut errors, &Path::of("spec"), spec);
    }
    errors.into_list()
}

/// Validates the spec, also of a claim within a StatefulSet or a volume.
pub fn validate_spec(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    if spec.list("accessModes").len() == 0 {
        errors.required(&path.child("accessModes"), "at least 1 access mode is required");
    }
    if let Some(selector) = present(spec, "selector") {
        label_selector(errors, &path.child("selector"), selector);
    }
    access_modes(errors, &path.child("accessModes"), spec);
    storage_request(errors, &path.child("resources"), spec);
    let class = spec.str("storageClassName");
    if !class.is_empty() {
        dns_subdomain(errors, &path.child("storageClassName"), class);
    }
    let mode = present(spec, "volumeMode").and_then(Ref::as_str);
    if let Some(mode) = mode.filter(|mode| !VOLUME_MODES.contains(mode)) {
        errors.not_supported(&path.child("volumeMode"), mode, &VOLUME_MODES);
    }
    data_source::validate(errors, path, spec);
    let class = spec.str("volumeAttributesClassName");
    if !class.is_empty() {
        dns_subdomain(errors, &path.child("volumeAttributesClassName"), class);
    }
}

/// The modes of a claim or a volume; the one for a single pod stands alone.
pub fn access_modes(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let modes: Vec<&str> = spec.list("accessModes").filter_map(Ref::as_str).collect();
    for mode in &modes {
        if !ACCESS_MODES.contains(mode) {
            errors.not_supported(path, *mode, &ACCESS_MODES);
        }
    }
    if modes.contains(&"ReadWriteOncePod") && modes.len() > 1 {
        let detail = "may not use ReadWriteOncePod with other access modes";
        errors.forbidden(path, detail);
    }
}

fn storage_request(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let at = path.key("storage");
    let text = spec.str_at(&["resources", "requests", "storage"]);
    let amount = text.parse::<Quantity>().ok();
    match amount {
        None => errors.required(&at, ""),
        Some(amount) if amount <= Quantity::default() => {
            errors.invalid(&at, text, "must be greater than zero");
        }
        Some(_) => {}
    }
}
