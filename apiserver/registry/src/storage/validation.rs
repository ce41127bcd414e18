//! What makes StorageClasses and VolumeAttachments acceptable.

use crate::validation::{Errors, Path, immutable, present};
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;

/// Every problem of a new StorageClass.
pub fn validate_class(class: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if class.at(&["parameters", ""]).is_some() {
        errors.invalid(&Path::of("parameters"), "", "field can not be empty.");
    }
    for (name, supported) in [
        ("reclaimPolicy", ["Delete", "Retain"]),
        ("volumeBindingMode", ["Immediate", "WaitForFirstConsumer"]),
    ] {
        let value = class.str(name);
        if !value.is_empty() && !supported.contains(&value) {
            errors.not_supported(&Path::of(name), value, &supported);
        }
    }
    let provisioner = class.str("provisioner");
    if provisioner.is_empty() {
        errors.required(&Path::of("provisioner"), "");
    } else {
        let problems = syntax::qualified_name(&provisioner.to_lowercase());
        errors.all_invalid(&Path::of("provisioner"), provisioner, problems);
    }
    errors.into_list()
}

/// What volumes were made with stays.
pub fn validate_class_update(class: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let text = |object: Ref<'_>, name: &str| object.get(name).map(Ref::to_json);
    if text(class, "parameters") != text(old, "parameters") {
        let detail = "updates to parameters are forbidden.";
        errors.forbidden(&Path::of("parameters"), detail);
    }
    if class.str("provisioner") != old.str("provisioner") {
        let detail = "updates to provisioner are forbidden.";
        errors.forbidden(&Path::of("provisioner"), detail);
    }
    for name in ["reclaimPolicy", "volumeBindingMode"] {
        let at = Path::of(name);
        immutable(
            &mut errors,
            &at,
            class.get(name),
            old.get(name),
            "field is immutable",
        );
    }
    errors.into_list()
}

/// Every problem of a new VolumeAttachment.
pub fn validate_attachment(attachment: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("spec");
    let Some(spec) = attachment.get("spec") else {
        return Vec::new();
    };
    source(&mut errors, &path.child("source"), spec);
    let node = spec.str("nodeName");
    errors.all_invalid(&path.child("nodeName"), node, syntax::dns1123_subdomain(node));
    if spec.str("attacher").is_empty() {
        errors.required(&path.child("attacher"), "");
    }
    errors.into_list()
}

fn source(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let of = |name: &str| spec.get("source").and_then(|source| present(source, name));
    let (inline, named) = (of("inlineVolumeSpec"), of("persistentVolumeName"));
    match (inline, named) {
        (None, None) => {
            let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
            errors.required(path, detail);
        }
        (Some(_), Some(_)) => {
            let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
            errors.forbidden(path, detail);
        }
        (None, Some(name)) => {
            let (at, name) = (
                path.child("persistentVolumeName"),
                name.as_str().unwrap_or_default(),
            );
            if name.is_empty() {
                errors.required(&at, "must specify non empty persistentVolumeName");
            }
            errors.all_invalid(&at, name, syntax::dns1123_subdomain(name));
        }
        (Some(_), None) => {}
    }
}

/// An attachment is what it was made as.
pub fn validate_attachment_update(attachment: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut problems = validate_attachment(attachment);
    let mut errors = Errors::new();
    let (new, was) = (attachment.get("spec"), old.get("spec"));
    if new.map(Ref::to_json) != was.map(Ref::to_json) {
        immutable(&mut errors, &Path::of("spec"), new, was, "field is immutable");
    }
    problems.extend(errors.into_list());
    problems
}
