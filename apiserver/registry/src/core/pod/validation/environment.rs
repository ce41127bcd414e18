//! Environment variables and where their values come from.

use super::containers::{no_backsteps, visit};
use crate::validation::{Errors, Path, dns_label, dns_subdomain, qualified};
use machinery_meta::field::Shown;
use machinery_meta::syntax;
use machinery_schema::Ref;
use std::collections::HashMap;

/// What an environment variable may be made from.
const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// What a file of a downward API volume may be made from.
pub const VOLUME_FIELDS: [&str; 5] = [
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

/// `env` and `envFrom` of a container.
pub fn validate(errors: &mut Errors, path: &Path<'_>, container: Ref<'_>) {
    let env = path.child("env");
    for (index, variable) in container.list("env").enumerate() {
        let at = env.index(index);
        let name = variable.str("name");
        if name.is_empty() {
            errors.required(&at.child("name"), "");
        } else {
            errors.all_invalid(&at.child("name"), name, syntax::env_var_name(name));
        }
        if let Some(source) = variable.get("valueFrom") {
            value_from(
                errors,
                &at.child("valueFrom"),
                source,
                !variable.str("value").is_empty(),
            );
        }
    }
    let env_from = path.child("envFrom");
    for (index, source) in container.list("envFrom").enumerate() {
        from_source(errors, &env_from.index(index), source);
    }
}

fn value_from(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>, has_value: bool) {
    let mut sources = 0;
    if let Some(field) = source.get("fieldRef") {
        sources += 1;
        field_ref(errors, &path.child("fieldRef"), field, &ENV_FIELDS);
    }
    if let Some(resource) = source.get("resourceFieldRef") {
        sources += 1;
        resource_field_ref(errors, &path.child("resourceFieldRef"), resource, false);
    }
    for name in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(key) = source.get(name) {
            sources += 1;
            key_ref(errors, &path.child(name), key);
        }
    }
    if let Some(key) = source.get("fileKeyRef") {
        sources += 1;
        file_key_ref(errors, &path.child("fileKeyRef"), key);
    }
    if sources == 0 {
        let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.invalid(path, "", detail);
    }
    if has_value && sources != 0 {
        errors.invalid(path, "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        errors.invalid(path, "", "may not have more than one field specified at a time");
    }
}

/// A key of a ConfigMap or Secret.
fn key_ref(errors: &mut Errors, path: &Path<'_>, key: Ref<'_>) {
    if key.str("name").is_empty() {
        errors.required(&path.child("name"), "");
    } else {
        dns_subdomain(errors, &path.child("name"), key.str("name"));
    }
    if key.str("key").is_empty() {
        errors.required(&path.child("key"), "");
    } else {
        errors.all_invalid(
            &path.child("key"),
            key.str("key"),
            syntax::config_map_key(key.str("key")),
        );
    }
}

/// A variable of a file that another container writes.
fn file_key_ref(errors: &mut Errors, path: &Path<'_>, key: Ref<'_>) {
    match key.str("key") {
        "" => errors.required(&path.child("key"), ""),
        name => errors.all_invalid(&path.child("key"), name, syntax::env_var_name(name)),
    }
    match key.str("volumeName") {
        "" => errors.required(&path.child("volumeName"), ""),
        name => dns_label(errors, &path.child("volumeName"), name),
    }
    match key.str("path") {
        "" => errors.required(&path.child("path"), ""),
        file => no_backsteps(errors, &path.child("path"), file),
    }
}

/// Such files lie in volumes that go with the pod.
pub(super) fn file_volumes(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let mut known = HashMap::new();
    for volume in spec.list("volumes") {
        known.entry(volume.str("name")).or_insert(volume);
    }
    visit(path, spec, |path, container| {
        let all = path.child("env");
        for (index, own) in container.list("env").enumerate() {
            let Some(key) = own.at(&["valueFrom", "fileKeyRef"]) else {
                continue;
            };
            let at = all.index(index);
            let at = at.child("valueFrom.fileKeyRef.volumeName");
            let name = key.str("volumeName");
            match known.get(name) {
                None => errors.not_found(&at, name),
                Some(volume) if volume.get("emptyDir").is_none() => {
                    errors.invalid(&at, name, "referenced volume must be of type emptyDir");
                }
                Some(_) => {}
            }
        }
    });
}

fn from_source(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>) {
    let prefix = source.str("prefix");
    if !prefix.is_empty() {
        errors.all_invalid(&path.child("prefix"), prefix, syntax::env_var_name(prefix));
    }
    let mut sources = 0;
    for name in ["configMapRef", "secretRef"] {
        let Some(reference) = source.get(name) else {
            continue;
        };
        sources += 1;
        let at = path.child(name);
        if reference.str("name").is_empty() {
            errors.required(&at.child("name"), "");
        } else {
            dns_subdomain(errors, &at.child("name"), reference.str("name"));
        }
    }
    match sources {
        0 => errors.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"),
        1 => {}
        _ => errors.invalid(path, "", "may not have more than one field specified at a time"),
    }
}

/// A field of the pod itself; `allowed` depends on where the value goes.
pub fn field_ref(errors: &mut Errors, path: &Path<'_>, field: Ref<'_>, allowed: &[&str]) {
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
pub fn resource_field_ref(errors: &mut Errors, path: &Path<'_>, field: Ref<'_>, in_volume: bool) {
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
