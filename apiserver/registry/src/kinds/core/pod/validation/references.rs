//! References of environment variables and volumes to fields and resources of their pod.

use crate::shared::validation::{Errors, Path, qualified};
use machinery_meta::field::Shown;
use machinery_schema::Ref;

/// Fields that a file of a downward API volume may refer to.
pub(super) const VOLUME_FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

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
    "spec.host",
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
    let known = match subscript {
        Some(_) => base == "metadata.labels" || base == "metadata.annotations",
        None => KNOWN_FIELDS.contains(&name),
    };
    if !known {
        let detail = format!("error converting fieldPath: field label not supported: {name}");
        errors.invalid(&path.child("fieldPath"), name, detail);
        return;
    }
    match subscript {
        Some(key) if base == "metadata.annotations" => qualified(errors, path, &key.to_lowercase()),
        Some(key) => qualified(errors, path, key),
        None if !allowed.contains(&name) => errors.not_supported(&path.child("fieldPath"), name, allowed),
        None => {}
    }
}

/// `a['b']` is `a` and `b`.
fn subscripted(path: &str) -> (&str, Option<&str>) {
    match path.strip_suffix("']").and_then(|rest| rest.split_once("['")) {
        Some((base, key)) => (base, Some(key)),
        None => (path, None),
    }
}

/// A request or limit of a container; a volume must name the container.
pub(super) fn resource_field_ref(errors: &mut Errors, path: &Path<'_>, field: Ref<'_>, in_volume: bool) {
    let resource = field.str("resource");
    if in_volume && field.str("containerName").is_empty() {
        errors.required(&path.child("containerName"), "");
        return;
    }
    if resource.is_empty() {
        errors.required(&path.child("resource"), "");
        return;
    }
    let huge_pages = resource.starts_with("limits.hugepages-") || resource.starts_with("requests.hugepages-");
    if !RESOURCE_FIELDS.contains(&resource) && !huge_pages {
        errors.not_supported(&path.child("resource"), resource, &RESOURCE_FIELDS);
        return;
    }
    divisor(errors, &path.child("divisor"), resource, field.str("divisor"));
}

fn divisor(errors: &mut Errors, path: &Path<'_>, resource: &str, divisor: &str) {
    let cpu = ["1m", "1"];
    let bytes = [
        "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
    ];
    let unset = divisor.is_empty() || divisor == "0";
    let refused = if resource.ends_with(".cpu") {
        (!cpu.contains(&divisor))
            .then_some("only divisor's values 1m and 1 are supported with the cpu resource")
    } else if resource.ends_with(".memory") || resource.contains(".hugepages-") {
        (!bytes.contains(&divisor)).then_some(
            "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the memory resource",
        )
    } else {
        (!bytes.contains(&divisor)).then_some(
            "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the local ephemeral storage resource",
        )
    };
    if let Some(detail) = refused.filter(|_| !unset) {
        errors.invalid(path, Shown(divisor.to_owned()), detail);
    }
}
