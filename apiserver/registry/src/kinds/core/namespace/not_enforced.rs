//! Labels of namespaces that have no effect yet.

use crate::shared::not_enforced::{Field, field};
use machinery_schema::Ref;

const POD_SECURITY: &str = "pod-security.kubernetes.io/";
const POD_SECURITY_MODES: [&str; 3] = ["enforce", "audit", "warn"];

/// Labels of pod security.
pub(crate) fn fields(object: Ref<'_>) -> Vec<Field> {
    let of = |mode: &str| {
        let name = format!("{POD_SECURITY}{mode}");
        let level = object.at(&["metadata", "labels", &name]);
        let level = level.filter(|level| level.as_str() != Some("privileged"));
        field(
            format!("metadata.labels[{name}]"),
            level,
            "pods are not checked against it",
        )
    };
    POD_SECURITY_MODES.into_iter().filter_map(of).collect()
}
