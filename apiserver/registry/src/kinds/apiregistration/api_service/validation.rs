//! Validation of APIServices; the name follows from group and version.

use crate::shared::validation::{Errors, Path, present};
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;

const MAX_GROUP_PRIORITY: i64 = 20_000;
const MAX_VERSION_PRIORITY: i64 = 1_000;

/// Every problem of an APIService, new or changed.
pub(crate) fn validate(service: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let Some(spec) = service.get("spec") else {
        return Vec::new();
    };
    let (group, version) = (spec.str("group"), spec.str("version"));
    let wanted = format!("{version}.{group}");
    let metadata = Path::of("metadata");
    for field in ["generateName", "name"] {
        let name = service.str_at(&["metadata", field]);
        if !name.is_empty() && name != wanted {
            let detail = format!("must be `spec.version+\".\"+spec.group`: {wanted:?}");
            errors.invalid(&metadata.child(field), name, detail);
        }
    }
    let path = Path::of("spec");
    if group.is_empty() {
        if version != "v1" {
            let detail = "only v1 may have an empty group and it better be legacy kube";
            errors.required(&path.child("group"), detail);
        }
    } else {
        errors.all_invalid(&path.child("group"), group, syntax::dns1123_subdomain(group));
    }
    errors.all_invalid(&path.child("version"), version, syntax::dns1035_label(version));
    priority(
        &mut errors,
        &path,
        spec,
        "groupPriorityMinimum",
        MAX_GROUP_PRIORITY,
    );
    priority(&mut errors, &path, spec, "versionPriority", MAX_VERSION_PRIORITY);
    backend(&mut errors, &path, spec);
    errors.into_list()
}

fn priority(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, name: &str, max: i64) {
    let value = spec.get(name).and_then(Ref::as_i64).unwrap_or(0);
    if value <= 0 || value > max {
        let detail = format!("must be positive and less than {max}");
        errors.invalid(&path.child(name), value, detail);
    }
}

fn backend(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let insecure = spec.get("insecureSkipTLSVerify").and_then(Ref::as_bool) == Some(true);
    let bundle = !spec.str("caBundle").is_empty();
    let Some(service) = present(spec, "service") else {
        if bundle {
            let shown = format!("{} bytes", decoded_length(spec.str("caBundle")));
            errors.invalid(
                &path.child("caBundle"),
                shown,
                "local APIServices may not have a caBundle",
            );
        }
        if insecure {
            let detail = "local APIServices may not have insecureSkipTLSVerify";
            errors.invalid(&path.child("insecureSkipTLSVerify"), true, detail);
        }
        return;
    };
    let at = path.child("service");
    for name in ["namespace", "name"] {
        if service.str(name).is_empty() {
            errors.required(&at.child(name), "");
        }
    }
    if let Some(port) = service.get("port").and_then(Ref::as_i64) {
        let problems = syntax::port_number(port);
        if !problems.is_empty() {
            let detail = format!("port is not valid: {}", problems.join(", "));
            errors.invalid(&at.child("port"), port, detail);
        }
    }
    if insecure && bundle {
        let detail = "may not be true if caBundle is present";
        errors.invalid(&path.child("insecureSkipTLSVerify"), true, detail);
    }
}

/// Bytes of a text in base64.
fn decoded_length(base64: &str) -> usize {
    let padding = base64.bytes().rev().take_while(|byte| *byte == b'=').count();
    (base64.len() / 4 * 3).saturating_sub(padding)
}

/// Every problem of a changed status.
pub(crate) fn validate_status_update(service: Ref<'_>, _old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let Some(status) = service.get("status") else {
        return Vec::new();
    };
    let (status_path, known) = (Path::of("status"), ["True", "False", "Unknown"]);
    let conditions = status_path.child("conditions");
    for (index, condition) in status.list("conditions").enumerate() {
        let own = condition.str("status");
        if !known.contains(&own) {
            errors.not_supported(&conditions.index(index).child("status"), own, &known);
        }
    }
    errors.into_list()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_service_bundle_is_shown_by_its_bytes() {
        for (base64, length) in [("", 0), ("YQ==", 1), ("YWI=", 2), ("YWJj", 3), ("YWJjZA==", 4)] {
            assert_eq!(decoded_length(base64), length, "{base64}");
        }
    }
}
