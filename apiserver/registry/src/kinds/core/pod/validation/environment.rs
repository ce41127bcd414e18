//! Environment variables and where their values come from.

use super::paths::no_backsteps;
use super::references::{field_ref, resource_field_ref};
use super::visit::visit;
use crate::shared::validation::{Errors, Path, dns_label, dns_subdomain};
use machinery_meta::syntax;
use machinery_schema::Ref;
use std::collections::HashMap;

/// Fields that an environment variable may refer to.
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
        from_source(errors, &env_from, &env_from.index(index), source);
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
    // An empty name is a malformed one.
    dns_subdomain(errors, &path.child("name"), key.str("name"));
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

/// Upstream reports the number of sources on the `list`.
fn from_source(errors: &mut Errors, list: &Path<'_>, path: &Path<'_>, source: Ref<'_>) {
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
        0 => errors.invalid(list, "", "must specify one of: `configMapRef` or `secretRef`"),
        1 => {}
        _ => errors.invalid(list, "", "may not have more than one field specified at a time"),
    }
}
