//! References of environment variables and volumes to fields and resources of their pod.

use crate::shared::validation::{Errors, Path, qualified};
use machinery_schema::Ref;

/// Fields that a file of a downward API volume may refer to.
pub(super) const VOLUME_FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

/// The one version of pods.
const POD_VERSION: &str = "v1";
/// The name that old clients have for the node.
const OLD_NODE_NAME: &str = "spec.host";

/// All paths that the downward API can name at all.
const KNOWN_FIELDS: [&str; 15] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
    OLD_NODE_NAME,
];

const RESOURCE_FIELDS: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// A field of the pod itself; `allowed` depends on where the value goes.
pub(super) fn field_ref(errors: &mut Errors, path: &Path<'_>, field: Ref<'_>, allowed: &[&str]) {
    if field.str("apiVersion").is_empty() {
        errors.required(&path.child("apiVersion"), "");
        return;
    }
    let name = field.str("fieldPath");
    if name.is_empty() {
        errors.required(&path.child("fieldPath"), "");
        return;
    }
    let (base, subscript) = subscripted(name);
    if let Err(why) = check_known(field.str("apiVersion"), (name, base), subscript) {
        let detail = format!("error converting fieldPath: {why}");
        errors.invalid(&path.child("fieldPath"), name, detail);
        return;
    }
    let name = if name == OLD_NODE_NAME {
        "spec.nodeName"
    } else {
        name
    };
    match subscript {
        Some(key) if base == "metadata.annotations" => qualified(errors, path, &key.to_lowercase()),
        Some(key) => qualified(errors, path, key),
        None if !allowed.contains(&name) => errors.not_supported(&path.child("fieldPath"), name, allowed),
        None => {}
    }
}

/// Refuses what names no field of a pod, as upstream's conversion of field labels does.
fn check_known(version: &str, (name, base): (&str, &str), subscript: Option<&str>) -> Result<(), String> {
    if version != POD_VERSION {
        return Err(format!("unsupported pod version: {version}"));
    }
    match subscript {
        Some(_) if !matches!(base, "metadata.labels" | "metadata.annotations") => {
            Err(format!("field label does not support subscript: {name}"))
        }
        None if !KNOWN_FIELDS.contains(&name) => Err(format!("field label not supported: {name}")),
        _ => Ok(()),
    }
}

/// `a['b']` is `a` and `b`.
fn subscripted(path: &str) -> (&str, Option<&str>) {
    match path.strip_suffix("']").and_then(|rest| rest.split_once("['")) {
        Some((base, key)) if !base.is_empty() => (base, Some(key)),
        _ => (path, None),
    }
}

/// A request or limit of a container; a volume must name the container.
pub(super) fn resource_field_ref(errors: &mut Errors, path: &Path<'_>, field: Ref<'_>, in_volume: bool) {
    let resource = field.str("resource");
    if in_volume && field.str("containerName").is_empty() {
        errors.required(&path.child("containerName"), "");
    } else if resource.is_empty() {
        errors.required(&path.child("resource"), "");
    } else if !RESOURCE_FIELDS.contains(&resource) && !is_huge_pages(resource) {
        errors.not_supported(&path.child("resource"), resource, &RESOURCE_FIELDS);
    }
    divisor(errors, &path.child("divisor"), resource, field.str("divisor"));
}

fn is_huge_pages(resource: &str) -> bool {
    resource.starts_with("limits.hugepages-") || resource.starts_with("requests.hugepages-")
}

/// Refuses a divisor that a resource does not have; upstream shows the resource instead of it.
fn divisor(errors: &mut Errors, path: &Path<'_>, resource: &str, divisor: &str) {
    const CPU: [&str; 2] = ["1m", "1"];
    const BYTES: [&str; 13] = [
        "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
    ];
    if divisor.is_empty() || divisor == "0" {
        return;
    }
    let of_bytes = |kind: &str| {
        let values = BYTES.join(", ");
        format!("only divisor's values {values} are supported with the {kind} resource")
    };
    let (is_known, detail) = match resource {
        "limits.cpu" | "requests.cpu" => {
            let detail = "only divisor's values 1m and 1 are supported with the cpu resource";
            (CPU.contains(&divisor), detail.to_owned())
        }
        "limits.memory" | "requests.memory" => (BYTES.contains(&divisor), of_bytes("memory")),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => {
            (BYTES.contains(&divisor), of_bytes("local ephemeral storage"))
        }
        resource if is_huge_pages(resource) => (BYTES.contains(&divisor), of_bytes("hugepages")),
        _ => return,
    };
    if !is_known {
        errors.invalid(path, resource, detail);
    }
}
