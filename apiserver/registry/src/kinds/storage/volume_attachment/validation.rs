//! Validation of VolumeAttachments (upstream's `pkg/apis/storage/validation`).

use crate::kinds::core::persistent_volume::validation::inline;
use crate::kinds::resource::devices::declared_driver_name;
use crate::shared::validation::{Errors, Path, present};
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;

const MAX_METADATA_BYTES: usize = 256 * 1024;
const MAX_MESSAGE_BYTES: usize = 1024;
const MAX_CODE: i64 = i32::MAX as i64;

/// Every problem of a new one.
pub fn validate(attachment: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    checked(&mut errors, attachment);
    attacher(&mut errors, attachment);
    errors.into_list()
}

/// An attachment is what it was made as; upstream declares so, and shows no value.
pub fn validate_update(attachment: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    // Of an update the declared one comes first.
    attacher(&mut errors, attachment);
    checked(&mut errors, attachment);
    if attachment.get("spec") != old.get("spec") {
        let shown = Shown("null".into());
        errors.invalid(&Path::of("spec"), shown, "field is immutable");
    }
    errors.into_list()
}

/// Validates the status that the attacher writes.
pub fn validate_status(attachment: Ref<'_>, _old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    status(&mut errors, attachment);
    errors.into_list()
}

fn checked(errors: &mut Errors, attachment: Ref<'_>) {
    let Some(spec) = attachment.get("spec") else {
        return;
    };
    let path = Path::of("spec");
    let (at, own) = (path.child("source"), spec.get("source"));
    let of = |name: &str| own.and_then(|source| present(source, name));
    let (volume, named) = (
        of("inlineVolumeSpec"),
        of("persistentVolumeName").and_then(Ref::as_str),
    );
    let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (volume, named) {
        (None, None) => errors.required(&at, detail),
        (Some(_), Some(_)) => errors.forbidden(&at, detail),
        (Some(volume), None) => inline(errors, &at.child("inlineVolumeSpec"), volume),
        (None, Some("")) => {
            let detail = "must specify non empty persistentVolumeName";
            errors.required(&at.child("persistentVolumeName"), detail);
        }
        (None, Some(_)) => {}
    }
    let node = spec.str("nodeName");
    errors.all_invalid(&path.child("nodeName"), node, syntax::dns1123_subdomain(node));
    status(errors, attachment);
    if let Some(name) = named {
        let at = at.child("persistentVolumeName");
        errors.all_invalid(&at, name, syntax::dns1123_subdomain(name));
    }
}

/// Declared upstream, hence reported last.
fn attacher(errors: &mut Errors, attachment: Ref<'_>) {
    let name = attachment.str_at(&["spec", "attacher"]);
    declared_driver_name(errors, &Path::of("spec").child("attacher"), name);
}

fn status(errors: &mut Errors, attachment: Ref<'_>) {
    let Some(own) = attachment.get("status") else {
        return;
    };
    let path = Path::of("status");
    let metadata = own.get("attachmentMetadata").into_iter().flat_map(Ref::entries);
    let size: usize = metadata
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > MAX_METADATA_BYTES {
        errors.too_long(&path.child("attachmentMetadata"), MAX_METADATA_BYTES);
    }
    for name in ["attachError", "detachError"] {
        if let Some(error) = present(own, name) {
            failure(errors, &path.child(name), error);
        }
    }
}

fn failure(errors: &mut Errors, path: &Path<'_>, error: Ref<'_>) {
    if error.str("message").len() > MAX_MESSAGE_BYTES {
        errors.too_long(&path.child("message"), MAX_MESSAGE_BYTES);
    }
    let code = error.get("errorCode").and_then(Ref::as_i64);
    if let Some(code) = code.filter(|code| *code < 0) {
        errors.invalid(
            &path.child("errorCode"),
            code,
            syntax::inclusive_range(0, MAX_CODE),
        );
    }
}
