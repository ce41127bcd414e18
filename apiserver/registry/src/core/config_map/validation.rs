//! What is wrong with a ConfigMap.

use machinery_meta::{FieldError, FieldPath, syntax};
use machinery_schema::Ref;

/// Data of a ConfigMap or Secret, all keys together.
pub(crate) const MAX_DATA_BYTES: usize = 1024 * 1024;

pub(super) fn validate(object: Ref<'_>) -> Vec<FieldError> {
    let mut problems = Vec::new();
    let mut total = 0;
    for (key, value) in object.get("data").into_iter().flat_map(Ref::entries) {
        let path = FieldPath::new("data").key(key);
        key_problems(&path, key, &mut problems);
        if object.get("binaryData").and_then(|binary| binary.get(key)).is_some() {
            problems.push(FieldError::invalid(&path, key, "duplicate of key present in binaryData"));
        }
        total += value.as_str().map_or(0, str::len);
    }
    for (key, value) in object.get("binaryData").into_iter().flat_map(Ref::entries) {
        let path = FieldPath::new("binaryData").key(key);
        key_problems(&path, key, &mut problems);
        // Base64: four characters for three bytes.
        total += value.as_str().map_or(0, |text| text.trim_end_matches('=').len() * 3 / 4);
    }
    if total > MAX_DATA_BYTES {
        problems.push(FieldError::too_long(&FieldPath::root(), MAX_DATA_BYTES));
    }
    problems
}

fn key_problems(path: &FieldPath, key: &str, problems: &mut Vec<FieldError>) {
    for detail in syntax::config_map_key(key) {
        problems.push(FieldError::invalid(path, key, detail));
    }
}

pub(super) fn validate_update(object: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut problems = Vec::new();
    let immutable = |object: Ref<'_>| object.get("immutable").and_then(Ref::as_bool) == Some(true);
    if immutable(old) {
        let refuse = |name: &str, detail: &str| FieldError::forbidden(&FieldPath::new(name), detail);
        if !immutable(object) {
            problems.push(refuse("immutable", "field is immutable when `immutable` is set"));
        }
        for name in ["data", "binaryData"] {
            if object.get(name) != old.get(name) {
                problems.push(refuse(name, "field is immutable when `immutable` is set"));
            }
        }
    }
    problems.extend(validate(object));
    problems
}
