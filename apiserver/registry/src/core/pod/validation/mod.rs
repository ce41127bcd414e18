//! What makes a pod acceptable (upstream's `pkg/apis/core/validation`, `ValidatePodCreate` and its parts).
//!
//! [`spec`] is the whole of a pod's spec and is what every workload's template goes through; [`containers`],
//! [`probes`], [`environment`], [`volumes`], [`resources`], [`security`] and [`scheduling`] are its parts, [`update`]
//! and [`status`] say what may change afterwards. Order and words are upstream's, since clients print them.

pub mod containers;
pub mod environment;
pub mod probes;
mod projected;
pub mod resize;
pub mod resources;
pub mod scheduling;
pub mod security;
pub mod spec;
pub mod status;
pub mod update;
pub mod volumes;

use crate::validation::{Errors, Path, annotations, labels};
use machinery_meta::FieldError;
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
    errors.into_list()
}

/// What is asked of a pod at any time, and of templates only in part.
fn whole(errors: &mut Errors, pod: Ref<'_>) {
    of_annotations(errors, pod);
    if let Some(spec) = pod.get("spec") {
        spec::validate(errors, &Path::of("spec"), spec);
        images(errors, &Path::of("spec"), spec);
    }
}

fn of_annotations(errors: &mut Errors, pod: Ref<'_>) {
    let path = Path::of("metadata");
    let path = path.child("annotations");
    let text = |key| pod.at(&["metadata", "annotations", key]).and_then(Ref::as_str);
    if let Some(value) = text(MIRROR).filter(|_| pod.str_at(&["spec", "nodeName"]).is_empty()) {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        errors.invalid(&path.key(MIRROR), value, detail);
    }
    if let Some(cost) = text(DELETION_COST).filter(|cost| !is_deletion_cost(cost)) {
        errors.invalid(&path.key(DELETION_COST), cost, "must be a 32bit integer");
    }
    seccomp_annotations(errors, &path, pod);
}

/// What a pod that a kubelet made from a file says of itself.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Pods of a ReplicaSet that cost less go first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// A number without a plus sign or a leading zero.
fn is_deletion_cost(text: &str) -> bool {
    let begins = text == "0" || text.starts_with(['-', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
    begins && text.parse::<i32>().is_ok()
}

/// The annotations that seccomp profiles were before they were fields.
fn seccomp_annotations(errors: &mut Errors, path: &Path<'_>, pod: Ref<'_>) {
    const POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
    let annotations = pod.at(&["metadata", "annotations"]);
    for (key, value) in annotations.into_iter().flat_map(Ref::entries) {
        let profile = value.as_str().unwrap_or_default();
        let known = ["runtime/default", "docker/default", "unconfined"].contains(&profile);
        if (key == POD || key.starts_with(CONTAINER)) && !known && !profile.starts_with("localhost/") {
            errors.invalid(&path.child(key), profile, "must be a valid seccomp profile");
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

/// What is asked of the template of a workload whose pods are started again whenever they end.
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
    annotations(errors, &at, template.at(&["metadata", "annotations"]));
    seccomp_annotations(errors, &at, template);
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
