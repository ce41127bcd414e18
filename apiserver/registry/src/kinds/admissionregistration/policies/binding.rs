//! Members of a binding: its policy, parameters, and what it is for.

use crate::kinds::admissionregistration::rules::{named_rule, texts};
use crate::shared::validation::{Errors, Path, dns_subdomain, label_selector, one_of, present};
use machinery_meta::syntax;
use machinery_schema::Ref;

/// Operations without DELETE: there is nothing to change in what is deleted.
const MUTATING_OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];

/// The constraints of a policy or binding.
pub(super) fn match_resources(errors: &mut Errors, path: &Path<'_>, own: Ref<'_>) {
    one_of(
        errors,
        path,
        own,
        "matchPolicy",
        &["Equivalent", "Exact"],
        Some(""),
    );
    for name in ["namespaceSelector", "objectSelector"] {
        match present(own, name) {
            None => errors.required(&path.child(name), ""),
            Some(selector) => label_selector(errors, &path.child(name), selector),
        }
    }
    for name in ["resourceRules", "excludeResourceRules"] {
        let rules = path.child(name);
        for (index, rule) in own.list(name).enumerate() {
            named_rule(errors, &rules.index(index), rule);
        }
    }
}

/// Operations of rules whose requests are changed.
pub(in crate::kinds::admissionregistration) fn mutating_operations(
    errors: &mut Errors,
    path: &Path<'_>,
    own: Ref<'_>,
) {
    let at = path.child("resourceRules.operations");
    for rule in own.list("resourceRules") {
        for operation in texts(rule, "operations") {
            if !MUTATING_OPERATIONS.contains(&operation) {
                errors.not_supported(&at, operation, &MUTATING_OPERATIONS);
            }
        }
    }
}

/// Members that bindings of both kinds have.
pub(in crate::kinds::admissionregistration) fn binding(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    match spec.str("policyName") {
        "" => errors.required(&path.child("policyName"), ""),
        name => dns_subdomain(errors, &path.child("policyName"), name),
    }
    if let Some(own) = present(spec, "paramRef") {
        param_ref(errors, &path.child("paramRef"), own);
    }
    if let Some(own) = present(spec, "matchResources") {
        match_resources(errors, &path.child("matchResources"), own);
    }
}

fn param_ref(errors: &mut Errors, path: &Path<'_>, own: Ref<'_>) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let (name, selector) = (own.str("name"), present(own, "selector"));
    if !name.is_empty() {
        errors.all_invalid(&path.child("name"), name, syntax::path_segment_name(name));
        if selector.is_some() {
            errors.forbidden(&path.child("name"), EXCLUSIVE);
        }
    }
    if let Some(selector) = selector {
        label_selector(errors, &path.child("selector"), selector);
        if !name.is_empty() {
            errors.forbidden(&path.child("selector"), EXCLUSIVE);
        }
    }
    if name.is_empty() && selector.is_none() {
        errors.required(path, "one of name or selector must be specified");
    }
    let at = path.child("parameterNotFoundAction");
    match own.str("parameterNotFoundAction") {
        "" => errors.required(&at, ""),
        "Deny" | "Allow" => {}
        other => errors.not_supported(&at, other, &["Deny", "Allow"]),
    }
}
