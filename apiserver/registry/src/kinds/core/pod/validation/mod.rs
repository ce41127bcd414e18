//! Validation of pods (upstream's `pkg/apis/core/validation`, `ValidatePodCreate` and its parts).
//!
//! [`spec`] validates the whole of a pod's spec, also within every workload's template; [`containers`], [`probes`],
//! [`environment`], [`volumes`], [`resources`], [`security`] and [`scheduling`] are its parts, and [`update`]
//! validates changes. Order and words are upstream's, since clients print them.

mod annotations;
pub mod containers;
pub mod environment;
mod files;
mod os;
mod paths;
pub mod ports;
pub mod probes;
mod projected;
mod references;
pub mod resize;
pub mod resources;
mod restart;
pub mod scheduling;
pub mod security;
pub(crate) mod sources;
pub mod spec;
pub(crate) mod status;
pub mod update;
mod visit;
pub mod volumes;

use crate::shared::validation::{Errors, Path, labels, present};
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;

/// Every problem of a new pod; metadata are checked by generic code.
pub fn validate(pod: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    whole(&mut errors, pod);
    let Some(spec) = pod.get("spec") else {
        return errors.into_list();
    };
    let path = Path::of("spec");
    if spec.list("ephemeralContainers").len() > 0 {
        errors.forbidden(&path.child("ephemeralContainers"), "cannot be set on create");
    }
    if !spec.str("nodeName").is_empty() && spec.list("schedulingGates").len() > 0 {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.forbidden(&path.child("nodeName"), detail);
    }
    annotations::match_seccomp(&mut errors, &path, pod);
    annotations::match_apparmor(&mut errors, &path, pod);
    errors.into_list()
}

/// Rules for pods at any time; only some of them apply to templates.
fn whole(errors: &mut Errors, pod: Ref<'_>) {
    annotations::validate(errors, &Path::of("metadata").child("annotations"), pod);
    if let Some(spec) = pod.get("spec") {
        let path = Path::of("spec");
        spec::validate(errors, &path, spec);
        tokens(errors, &path.child("volumes"), spec);
        claim_names(errors, &path.child("volumes"), pod, spec);
        images(errors, &path, spec);
    }
}

/// The claim that is made for a volume has the name of the pod and that of the volume.
fn claim_names(errors: &mut Errors, path: &Path<'_>, pod: Ref<'_>, spec: Ref<'_>) {
    let pod_name = pod.str_at(&["metadata", "name"]);
    for (index, volume) in spec.list("volumes").enumerate() {
        let name = volume.str("name");
        if pod_name.is_empty() || name.is_empty() || present(volume, "ephemeral").is_none() {
            continue;
        }
        let claim = format!("{pod_name}-{name}");
        for problem in syntax::dns1123_subdomain(&claim) {
            let detail = format!("PVC name {claim:?}: {problem}");
            errors.invalid(&path.index(index).child("name"), name, detail);
        }
    }
}

/// A token is of some service account.
fn tokens(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    if !spec.str("serviceAccountName").is_empty() {
        return;
    }
    for (index, volume) in spec.list("volumes").enumerate() {
        let at = path.index(index);
        let at = at.child("projected.sources");
        let sources = volume
            .get("projected")
            .into_iter()
            .flat_map(|own| own.list("sources"));
        for (index, source) in sources.enumerate() {
            if source.get("serviceAccountToken").is_some() {
                let detail = "must not be specified when serviceAccountName is not set";
                errors.forbidden(&at.index(index).child("serviceAccountToken"), detail);
            }
        }
    }
}

fn images(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    for list in ["containers", "initContainers"] {
        let list_path = path.child(list);
        for (index, container) in spec.list(list).enumerate() {
            let image = container.str("image");
            if image.trim() != image {
                let at = list_path.index(index);
                errors.invalid(
                    &at.child("image"),
                    image,
                    "must not have leading or trailing whitespace",
                );
            }
        }
    }
}

/// Validates the template of a workload that restarts its pods always.
pub fn runs_for_ever(errors: &mut Errors, path: &Path<'_>, template: Ref<'_>, kind: &str) {
    let spec = path.child("spec");
    let policy = template.str_at(&["spec", "restartPolicy"]);
    if policy != "Always" {
        errors.not_supported(&spec.child("restartPolicy"), policy, &["Always"]);
    }
    if template.at(&["spec", "activeDeadlineSeconds"]).is_some() {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.forbidden(&spec.child("activeDeadlineSeconds"), &detail);
    }
}

/// A `PodTemplateSpec` in a workload.
pub fn validate_template(errors: &mut Errors, path: &Path<'_>, template: Ref<'_>) {
    // Upstream leaves `metadata` out of these paths.
    labels(
        errors,
        &path.child("labels"),
        template.at(&["metadata", "labels"]),
    );
    let at = path.child("annotations");
    crate::shared::validation::annotations(errors, &at, template.at(&["metadata", "annotations"]));
    annotations::validate(errors, &at, template);
    let spec_path = path.child("spec");
    if let Some(spec) = template.get("spec") {
        spec::validate(errors, &spec_path, spec);
        annotations::match_seccomp(errors, &spec_path, template);
        let ephemeral = spec.list("ephemeralContainers").len();
        if ephemeral > 0 {
            errors.forbidden(
                &spec_path.child("ephemeralContainers"),
                "ephemeral containers not allowed in pod template",
            );
        }
    }
}
