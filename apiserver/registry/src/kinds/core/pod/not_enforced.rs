//! Fields of pods, and of templates of pods, that have no effect yet.

use crate::shared::not_enforced::stored_only;
use crate::shared::validation::Path;
use machinery_schema::Ref;

/// Volumes that nodes provide; a pod with another is stored, and does not start.
const PROVIDED_VOLUMES: [&str; 10] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "hostPath",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// The warnings for a pod's spec, or a template's.
pub(crate) fn pod(path: &Path<'_>, spec: Ref<'_>) -> Vec<String> {
    volumes(&path.child("volumes"), spec)
}

fn warning(path: &Path<'_>, missing: &str) -> String {
    stored_only(&path.to_path().to_string(), missing)
}

fn volumes(path: &Path<'_>, spec: Ref<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    for (index, volume) in spec.list("volumes").enumerate() {
        let sources = volume
            .entries()
            .filter(|(name, value)| *name != "name" && !value.is_null());
        for (source, _) in sources.filter(|(source, _)| !PROVIDED_VOLUMES.contains(source)) {
            let at = path.index(index);
            warnings.push(warning(
                &at.child(source),
                "nodes do not provide volumes of this type",
            ));
        }
    }
    warnings
}
