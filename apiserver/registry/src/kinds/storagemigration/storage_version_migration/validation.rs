//! Validation of StorageVersionMigrations, new and changed.

use crate::shared::validation::{Errors, Path, conditions};
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;

const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";

/// Every problem of a new one.
pub(crate) fn validate(migration: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let of = |name: &str| migration.str_at(&["spec", "resource", name]);
    let spec = Path::of("spec");
    let path = spec.child("resource");
    let at = path.child("resource");
    match of("resource") {
        "" => errors.required(&at, "resource is required to be set"),
        resource => joined(&mut errors, &at, resource, &syntax::dns1035_label(resource)),
    }
    let group = of("group");
    if !group.is_empty() {
        joined(
            &mut errors,
            &path.child("group"),
            group,
            &syntax::dns1123_subdomain(group),
        );
    }
    errors.into_list()
}

/// Refuses a change of the spec; upstream shows its internal type.
pub(crate) fn validate_update(new: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut all = validate(new);
    if new.get("spec") != old.get("spec") {
        let resource = new.at(&["spec", "resource"]);
        let of = |name: &str| format!("{:?}", resource.map_or("", |own| own.str(name)));
        let shown = format!(
            r#"{{"Resource":{{"group":{},"resource":{}}}}}"#,
            of("group"),
            of("resource")
        );
        let mut errors = Errors::new();
        errors.invalid(&Path::of("spec"), Shown(shown), "field is immutable");
        all.extend(errors.into_list());
    }
    all
}

/// Checks that a migration goes on from one revision, and ends once, one way.
pub(crate) fn validate_status(new: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("status");
    let revision = |own: Ref<'_>| own.str_at(&["status", "resourceVersion"]).to_owned();
    let (before, after) = (revision(old), revision(new));
    let at = path.child("resourceVersion");
    if !after.is_empty() && !is_revision(&after) {
        let detail = format!("resource version is not well formed: {after}");
        errors.invalid(&at, after.as_str(), detail);
    }
    let list = path.child("conditions");
    if let Some(status) = new.get("status") {
        conditions(&mut errors, &list, status);
    }
    if !before.is_empty() && before != after {
        errors.invalid(&at, after.as_str(), "field is immutable");
    }
    let mut refuse = |detail: &str| {
        let shown = new
            .at(&["status", "conditions"])
            .map_or("[]".into(), Ref::to_json);
        errors.invalid(&list, Shown(shown), detail);
    };
    if is_true(new, SUCCEEDED) && is_true(new, FAILED) {
        refuse("Both success and failed conditions cannot be true at the same time");
    }
    if is_true(old, SUCCEEDED) && !is_true(new, SUCCEEDED) {
        refuse("Success condition cannot be set to false once it is true");
    }
    if is_true(old, FAILED) && !is_true(new, FAILED) {
        refuse("Failed condition cannot be set to false once it is true");
    }
    errors.into_list()
}

/// A number above zero in its one spelling, however long.
fn is_revision(text: &str) -> bool {
    !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_true(migration: Ref<'_>, kind: &str) -> bool {
    let status = migration.get("status").into_iter();
    let mut conditions = status.flat_map(|status| status.list("conditions"));
    conditions
        .find(|own| own.str("type") == kind)
        .is_some_and(|own| own.str("status") == "True")
}

/// Upstream joins the sentences of a rule here.
fn joined(errors: &mut Errors, path: &Path<'_>, value: &str, problems: &[String]) {
    if !problems.is_empty() {
        errors.invalid(path, value, problems.join(","));
    }
}
