//! Validation of ControllerRevisions (upstream's `pkg/apis/apps/validation`).

use crate::shared::validation::{Errors, Path, immutable, non_negative};
use machinery_meta::FieldError;
use machinery_schema::Ref;

/// Every problem of a new one.
pub fn validate(revision: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    non_negative(&mut errors, &Path::ROOT, revision, "revision");
    let data = revision
        .get("data")
        .and_then(Ref::as_raw)
        .unwrap_or("null")
        .trim();
    let path = Path::of("data");
    if data == "null" {
        errors.required(&path, "data is mandatory");
    } else if !data.starts_with('{') {
        errors.required(&path, "data must be a valid JSON object");
    }
    errors.into_list()
}

/// Every problem of a changed one; what it remembers stays.
pub fn validate_update(revision: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    non_negative(&mut errors, &Path::ROOT, revision, "revision");
    let (new, old) = (revision.get("data"), old.get("data"));
    immutable(&mut errors, &Path::of("data"), new, old, "field is immutable");
    errors.into_list()
}
