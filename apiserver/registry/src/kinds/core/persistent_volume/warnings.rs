//! Warnings about a valid volume.

use crate::kinds::core::pod::warnings::deprecated_label;
use crate::shared::validation::{Path, present};
use machinery_schema::Ref;

const DEPRECATED_ANNOTATIONS: [(&str, &str); 2] = [
    (
        "volume.beta.kubernetes.io/storage-class",
        r#"deprecated since v1.8; use "storageClassName" attribute instead"#,
    ),
    (
        "volume.beta.kubernetes.io/mount-options",
        r#"deprecated since v1.31; use "mountOptions" attribute instead"#,
    ),
];
/// Member, its name in the warning, and the warning.
const DEPRECATED_SOURCES: [(&str, &str, &str); 6] = [
    (
        "cephfs",
        "cephfs",
        "deprecated in v1.28, non-functional in v1.31+",
    ),
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "scaleIO",
        "scaleIO",
        "deprecated in v1.16, non-functional in v1.22+",
    ),
    (
        "storageos",
        "storageOS",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "glusterfs",
        "glusterfs",
        "deprecated in v1.25, non-functional in v1.26+",
    ),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];
const RECYCLE: &str = "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the \
                       recommended approach is to use dynamic provisioning.";

/// Upstream's warnings, in its order.
pub(super) fn of(volume: Ref<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    for (key, message) in DEPRECATED_ANNOTATIONS {
        if volume.at(&["metadata", "annotations", key]).is_some() {
            warnings.push(format!("metadata.annotations[{key}]: {message}"));
        }
    }
    let Some(spec) = volume.get("spec") else {
        return warnings;
    };
    if spec.str("persistentVolumeReclaimPolicy") == "Recycle" {
        warnings.push(RECYCLE.to_owned());
    }
    warnings.extend(labels(spec));
    for (name, shown, message) in DEPRECATED_SOURCES {
        if present(spec, name).is_some() {
            warnings.push(format!("spec.{shown}: {message}"));
        }
    }
    warnings
}

/// Labels of nodes that have a successor.
fn labels(spec: Ref<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let path = Path::of("spec.nodeAffinity.required.nodeSelectorTerms");
    let required = spec.at(&["nodeAffinity", "required"]);
    let terms = required
        .into_iter()
        .flat_map(|required| required.list("nodeSelectorTerms"));
    for (index, term) in terms.enumerate() {
        let term_path = path.index(index);
        let expressions = term_path.child("matchExpressions");
        for (index, expression) in term.list("matchExpressions").enumerate() {
            let key = expression.str("key");
            if let Some(message) = deprecated_label(key) {
                let at = expressions.index(index);
                warnings.push(format!("{}: {key} is {message}", at.child("key").to_path()));
            }
        }
    }
    warnings
}
