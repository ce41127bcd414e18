//! Validation of Secrets (upstream's `ValidateSecret`). No message ever shows a value.

use crate::kinds::core::config_map::validation::{MAX_BYTES, frozen};
use crate::shared::validation::{Errors, Path, immutable};
use base64::Engine;
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;

const REDACTED: &str = "<secret contents redacted>";

/// Every problem of a Secret.
pub fn validate(secret: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("data");
    let mut total = 0;
    for (key, value) in secret.get("data").into_iter().flat_map(Ref::entries) {
        errors.all_invalid(&path.key(key), key, syntax::config_map_key(key));
        total += value.as_str().map_or(0, |text| text.len() / 4 * 3);
    }
    if total > MAX_BYTES {
        errors.too_long(&path, MAX_BYTES);
    }
    by_type(&mut errors, &path, secret);
    errors.into_list()
}

/// Every problem of a changed Secret.
pub fn validate_update(secret: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    immutable(
        &mut errors,
        &Path::of("type"),
        secret.get("type"),
        old.get("type"),
        "field is immutable",
    );
    frozen(&mut errors, secret, old, &["data"]);
    let mut all = errors.into_list();
    all.extend(validate(secret));
    all
}

fn by_type(errors: &mut Errors, path: &Path<'_>, secret: Ref<'_>) {
    let has = |key: &str| secret.at(&["data", key]).is_some();
    let mut required = |keys: &[&str]| {
        for key in keys.iter().filter(|key| !has(key)) {
            errors.required(&path.key(key), "");
        }
    };
    match secret.str("type") {
        "kubernetes.io/tls" => required(&["tls.crt", "tls.key"]),
        "kubernetes.io/ssh-auth" => required(&["ssh-privatekey"]),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            required(&["username", "password"]);
        }
        "kubernetes.io/service-account-token" => {
            let name = "kubernetes.io/service-account.name";
            if secret.str_at(&["metadata", "annotations", name]).is_empty() {
                let annotations = Path::of("metadata.annotations");
                errors.required(&annotations.key(name), "");
            }
        }
        "kubernetes.io/dockerconfigjson" => json_value(errors, path, secret, ".dockerconfigjson"),
        "kubernetes.io/dockercfg" => json_value(errors, path, secret, ".dockercfg"),
        _ => {}
    }
}

fn json_value(errors: &mut Errors, path: &Path<'_>, secret: Ref<'_>, key: &str) {
    let Some(text) = secret.at(&["data", key]).and_then(Ref::as_str) else {
        errors.required(&path.key(key), "");
        return;
    };
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(text)
        .unwrap_or_default();
    let first = bytes.iter().copied().find(|byte| !byte.is_ascii_whitespace());
    let parsed =
        std::str::from_utf8(&bytes).is_ok_and(|text| machinery_schema::Tree::from_json(text).is_ok());
    match first {
        _ if parsed => {}
        None => errors.invalid(&path.key(key), REDACTED, "unexpected end of JSON input"),
        Some(byte) if !b"{[\"-0123456789tfn".contains(&byte) => {
            let shown = if byte.is_ascii_graphic() {
                format!("'{}'", char::from(byte))
            } else {
                format!("'\\x{byte:02x}'")
            };
            let detail = format!("invalid character {shown} looking for beginning of value");
            errors.invalid(&path.key(key), REDACTED, detail);
        }
        Some(_) => errors.invalid(&path.key(key), REDACTED, "unexpected end of JSON input"),
    }
}
