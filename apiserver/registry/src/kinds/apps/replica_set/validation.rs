//! Validation of ReplicaSets (upstream's `pkg/apis/apps/validation`).

use crate::kinds::apps::workload::{self, Named};
use crate::shared::validation::{Errors, Path, non_negative};
use machinery_meta::FieldError;
use machinery_schema::Ref;

/// Upstream calls its selector a deployment's.
const NAMED: Named = Named {
    in_selector: "deployment",
    in_template: "ReplicaSet",
    unreadable: Some("invalid label selector"),
};

/// Every problem of a ReplicaSet.
pub fn validate(set: Ref<'_>) -> Vec<FieldError> {
    workload::validate(set, validate_spec)
}

/// Every problem of a change: those of the new one, and the selector stays.
pub fn validate_update(set: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = validate(set);
    errors.extend(workload::fixed(set, old, &["selector"]));
    errors
}

fn validate_spec(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    non_negative(errors, path, spec, "replicas");
    non_negative(errors, path, spec, "minReadySeconds");
    workload::required_selector(errors, path, spec, NAMED);
    if let Some(template) = spec.get("template") {
        workload::template(errors, path, spec, template, NAMED);
    }
}
