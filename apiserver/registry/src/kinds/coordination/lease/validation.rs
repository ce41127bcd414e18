//! Validation of Leases (upstream's `pkg/apis/coordination/validation`).

use crate::shared::validation::{Errors, Path, non_negative};
use machinery_meta::FieldError;
use machinery_schema::Ref;

/// Every problem of a Lease.
pub fn validate(lease: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("spec");
    let Some(spec) = lease.get("spec") else {
        return Vec::new();
    };
    if let Some(seconds) = spec
        .get("leaseDurationSeconds")
        .and_then(Ref::as_i64)
        .filter(|s| *s <= 0)
    {
        errors.invalid(
            &path.child("leaseDurationSeconds"),
            seconds,
            "must be greater than 0",
        );
    }
    non_negative(&mut errors, &path, spec, "leaseTransitions");
    let holder = spec.get("holderIdentity").and_then(Ref::as_str);
    if holder.is_some_and(str::is_empty) && spec.get("strategy").is_some() {
        errors.required(&path.child("holderIdentity"), "");
    }
    if spec.get("preferredHolder").is_some() && spec.get("strategy").is_none() {
        errors.forbidden(
            &path.child("preferredHolder"),
            "may only be specified if `strategy` is defined",
        );
    }
    errors.into_list()
}
