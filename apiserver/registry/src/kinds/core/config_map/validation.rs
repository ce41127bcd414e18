//! Validation of ConfigMaps (upstream's `ValidateConfigMap`).

use crate::shared::validation::{Errors, Path};
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;

/// All values of a ConfigMap, or of a Secret, together.
pub const MAX_BYTES: usize = 1024 * 1024;

/// Every problem of a ConfigMap.
pub fn validate(map: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let mut total = 0;
    let (data, binary) = (Path::of("data"), Path::of("binaryData"));
    for (key, value) in map.get("data").into_iter().flat_map(Ref::entries) {
        errors.all_invalid(&data.key(key), key, syntax::config_map_key(key));
        if map.at(&["binaryData", key]).is_some() {
            errors.invalid(&data.key(key), key, "duplicate of key present in binaryData");
        }
        total += value.as_str().map_or(0, str::len);
    }
    for (key, value) in map.get("binaryData").into_iter().flat_map(Ref::entries) {
        errors.all_invalid(&binary.key(key), key, syntax::config_map_key(key));
        total += value.as_str().map_or(0, |text| text.len() / 4 * 3);
    }
    if total > MAX_BYTES {
        // Upstream has no name for all of it.
        errors.too_long(&Path::ROOT.key(""), MAX_BYTES);
    }
    errors.into_list()
}

/// Every problem of a changed ConfigMap: an immutable one stays as it is.
pub fn validate_update(map: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    frozen(&mut errors, map, old, &["data", "binaryData"]);
    let mut all = errors.into_list();
    all.extend(validate(map));
    all
}

/// The rule of `immutable: true`, which Secrets share.
pub fn frozen(errors: &mut Errors, new: Ref<'_>, old: Ref<'_>, members: &[&'static str]) {
    if old.get("immutable").and_then(Ref::as_bool) != Some(true) {
        return;
    }
    let detail = "field is immutable when `immutable` is set";
    if new.get("immutable").and_then(Ref::as_bool) != Some(true) {
        errors.forbidden(&Path::of("immutable"), detail);
    }
    for member in members {
        let text = |object: Ref<'_>| {
            object
                .get(member)
                .filter(|value| !value.is_empty())
                .map(Ref::to_json)
        };
        if text(new) != text(old) {
            errors.forbidden(&Path::of(member), detail);
        }
    }
}
