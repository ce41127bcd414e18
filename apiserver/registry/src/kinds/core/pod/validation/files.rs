//! Files of volumes: their paths and modes, and what a source must have.

use super::paths::local_file;
use super::references::{VOLUME_FIELDS, field_ref, resource_field_ref};
use crate::shared::validation::{Errors, Path};
use machinery_schema::Ref;

pub(super) fn required(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>, names: &[&str]) {
    for name in names {
        if source.str(name).is_empty() {
            errors.required(&path.child(name), "");
        }
    }
}

pub(super) fn mode(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>, name: &str) {
    if let Some(mode) = source
        .get(name)
        .and_then(Ref::as_i64)
        .filter(|mode| !(0..=0o777).contains(mode))
    {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.invalid(&path.child(name), mode, detail);
    }
}

pub(super) fn items(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>) {
    for (index, item) in source.list("items").enumerate() {
        let at = path.index(index);
        if item.str("key").is_empty() {
            errors.required(&at.child("key"), "");
        }
        if item.str("path").is_empty() {
            errors.required(&at.child("path"), "");
        }
        local_file(errors, &at.child("path"), item.str("path"));
        mode(errors, &at, item, "mode");
    }
}

pub(super) fn downward_file(errors: &mut Errors, path: &Path<'_>, item: Ref<'_>) {
    if item.str("path").is_empty() {
        errors.required(&path.child("path"), "");
    }
    local_file(errors, &path.child("path"), item.str("path"));
    match (item.get("fieldRef"), item.get("resourceFieldRef")) {
        (Some(field), resource) => {
            field_ref(errors, &path.child("fieldRef"), field, &VOLUME_FIELDS);
            if resource.is_some() {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.invalid(path, "resource", detail);
            }
        }
        (None, Some(resource)) => {
            resource_field_ref(errors, &path.child("resourceFieldRef"), resource, true);
        }
        (None, None) => errors.required(path, "one of fieldRef and resourceFieldRef is required"),
    }
    mode(errors, path, item, "mode");
}
