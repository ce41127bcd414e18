//! Rules that say which requests a webhook or a policy is for.

use crate::shared::validation::{Errors, Path};
use machinery_meta::field::Shown;
use machinery_meta::syntax;
use machinery_schema::Ref;
use std::collections::HashSet;

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];

/// A rule with its operations.
pub(super) fn rule(errors: &mut Errors, path: &Path<'_>, rule: Ref<'_>) {
    let operations = texts(rule, "operations");
    let at = path.child("operations");
    required(errors, &at, &operations);
    alone(errors, &at, rule, "operations", "operations");
    for (index, operation) in operations.iter().enumerate() {
        if !OPERATIONS.contains(operation) {
            errors.not_supported(&at.index(index), *operation, &OPERATIONS);
        }
    }
    required(errors, &path.child("apiGroups"), &texts(rule, "apiGroups"));
    alone(errors, &path.child("apiGroups"), rule, "apiGroups", "API groups");
    let versions = texts(rule, "apiVersions");
    let at = path.child("apiVersions");
    required(errors, &at, &versions);
    alone(errors, &at, rule, "apiVersions", "API versions");
    for (index, _) in versions.iter().enumerate().filter(|(_, own)| own.is_empty()) {
        errors.required(&at.index(index), "");
    }
    resources(errors, &path.child("resources"), rule);
    let scope = rule.get("scope").filter(|scope| !scope.is_null());
    if let Some(scope) = scope.and_then(Ref::as_str).filter(|own| !SCOPES.contains(own)) {
        errors.not_supported(&path.child("scope"), scope, &SCOPES);
    }
}

/// A rule of a policy, which may name objects.
pub(super) fn named_rule(errors: &mut Errors, path: &Path<'_>, own: Ref<'_>) {
    let (names, mut seen) = (path.child("resourceNames"), HashSet::new());
    for (index, name) in texts(own, "resourceNames").into_iter().enumerate() {
        let at = names.index(index);
        errors.all_invalid(&at, name, syntax::path_segment_name(name));
        if !seen.insert(name) {
            errors.duplicate(&at, name);
        }
    }
    rule(errors, path, own);
}

/// The texts of a list.
pub(super) fn texts<'a>(object: Ref<'a>, name: &str) -> Vec<&'a str> {
    object.list(name).filter_map(Ref::as_str).collect()
}

fn required(errors: &mut Errors, path: &Path<'_>, values: &[&str]) {
    if values.is_empty() {
        errors.required(path, "");
    }
}

fn shown(rule: Ref<'_>, name: &str) -> Shown {
    Shown(rule.get(name).map(Ref::to_json).unwrap_or_default())
}

/// `*` has no others beside it.
fn alone(errors: &mut Errors, path: &Path<'_>, rule: Ref<'_>, name: &str, others: &str) {
    let values = texts(rule, name);
    if values.len() > 1 && values.contains(&"*") {
        let detail = format!("if '*' is present, must not specify other {others}");
        errors.invalid(path, shown(rule, name), detail);
    }
}

/// Resources, with subresources behind a slash.
fn resources(errors: &mut Errors, path: &Path<'_>, rule: Ref<'_>) {
    let all = texts(rule, "resources");
    required(errors, path, &all);
    let (mut of_any_part, mut parts_of_any) = (HashSet::new(), HashSet::new());
    let mut has_whole = false;
    for (index, own) in all.iter().enumerate() {
        let at = path.index(index);
        if own.is_empty() {
            errors.required(&at, "");
            continue;
        }
        let Some((resource, part)) = own.split_once('/') else {
            // Upstream's last one without a part decides.
            has_whole = *own != "*";
            continue;
        };
        if of_any_part.contains(resource) {
            let detail = format!("if '{resource}/*' is present, must not specify {own}");
            errors.invalid(&at, *own, detail);
        }
        if parts_of_any.contains(part) {
            let detail = format!("if '*/{part}' is present, must not specify {own}");
            errors.invalid(&at, *own, detail);
        }
        if part == "*" {
            of_any_part.insert(resource);
        }
        if resource == "*" {
            parts_of_any.insert(part);
        }
    }
    if all.len() > 1 && all.contains(&"*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.invalid(path, shown(rule, "resources"), detail);
    }
    if all.contains(&"*") && has_whole {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(path, shown(rule, "resources"), detail);
    }
}
