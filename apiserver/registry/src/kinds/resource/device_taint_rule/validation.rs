//! Validation of DeviceTaintRules.

use crate::kinds::resource::Problems;
use crate::kinds::resource::devices::{driver_name, known_effect, pool_name};
use crate::shared::validation::{Errors, Path, conditions, dns_label, present, qualified};
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;

const MAX_CONDITIONS: usize = 8;

/// Every problem of a rule, new or changed.
pub fn validate(rule: Ref<'_>) -> Vec<FieldError> {
    let mut problems = Problems::default();
    let Some(spec) = rule.get("spec") else {
        return Vec::new();
    };
    let path = Path::of("spec");
    if let Some(selector) = present(spec, "deviceSelector") {
        select(&mut problems.seen, &path.child("deviceSelector"), selector);
    }
    let at = path.child("taint");
    let of = |name: &str| spec.str_at(&["taint", name]);
    qualified(&mut problems.seen, &at.child("key"), of("key"));
    let value = of("value");
    problems
        .seen
        .all_invalid(&at.child("value"), value, syntax::label_value(value));
    match of("effect") {
        "" => problems.declared.required(&at.child("effect"), ""),
        effect => known_effect(&mut problems.declared, &at.child("effect"), effect),
    }
    problems.into_list()
}

/// Validates the status that the controller writes.
pub fn validate_status(rule: Ref<'_>, _old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let Some(status) = rule.get("status") else {
        return Vec::new();
    };
    let own = Path::of("status");
    let path = own.child("conditions");
    conditions(&mut errors, &path, status);
    let count = status.list("conditions").len();
    if count > MAX_CONDITIONS {
        errors.too_many(&path, count, MAX_CONDITIONS);
    }
    errors.into_list()
}

/// Validates the names in a selector; an absent one selects all.
fn select(errors: &mut Errors, path: &Path<'_>, selector: Ref<'_>) {
    for (name, rule) in [
        ("driver", driver_name as fn(&mut Errors, &Path<'_>, &str)),
        ("pool", pool_name),
        ("device", dns_label),
    ] {
        if let Some(value) = present(selector, name).and_then(Ref::as_str) {
            rule(errors, &path.child(name), value);
        }
    }
}
