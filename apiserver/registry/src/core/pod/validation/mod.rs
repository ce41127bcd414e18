//! What makes a pod acceptable (upstream's `pkg/apis/core/validation`, `ValidatePodCreate` and its parts).
//!
//! [`spec`] is the whole of a pod's spec and is what every workload's template goes through; [`containers`],
//! [`probes`], [`environment`], [`volumes`], [`resources`], [`security`] and [`scheduling`] are its parts, [`update`]
//! says what may change afterwards. Order and words are upstream's, since clients print them.

pub mod containers;
pub mod environment;
pub mod probes;
mod projected;
pub mod resources;
pub mod scheduling;
pub mod security;
pub mod spec;
pub mod update;
pub mod volumes;

use crate::validation::{Errors, Path, annotations, labels};
use machinery_meta::FieldError;
use machinery_schema::Ref;

/// Every problem of a new pod; metadata are checked by generic code.
pub fn validate(pod: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if let Some(spec) = pod.get("spec") {
        spec::validate(&mut errors, &Path::of("spec"), spec);
    }
    errors.into_list()
}

/// A `PodTemplateSpec` in a workload.
pub fn validate_template(errors: &mut Errors, path: &Path<'_>, template: Ref<'_>) {
    let metadata = path.child("metadata");
    labels(
        errors,
        &metadata.child("labels"),
        template.at(&["metadata", "labels"]),
    );
    annotations(
        errors,
        &metadata.child("annotations"),
        template.at(&["metadata", "annotations"]),
    );
    let spec_path = path.child("spec");
    if let Some(spec) = template.get("spec") {
        spec::validate(errors, &spec_path, spec);
        let ephemeral = spec.list("ephemeralContainers").len();
        if ephemeral > 0 {
            errors.forbidden(
                &spec_path.child("ephemeralContainers"),
                "ephemeral containers not allowed in pod template",
            );
        }
    }
}
