//! Validation of IngressClasses.

use crate::engine::strategy::path_segment_problems;
use crate::shared::validation::{
    Errors, Path, dns_label, dns_subdomain, domain_prefixed_path, immutable_text, present,
};
use machinery_meta::FieldError;
use machinery_schema::Ref;

const MAX_CONTROLLER: usize = 250;
const SCOPES: [&str; 2] = ["Cluster", "Namespace"];

/// Every problem of a new class.
pub(super) fn validate(class: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    whole(&mut errors, class);
    errors.into_list()
}

/// Every problem of a changed class: its ingresses were given to the controller.
pub(super) fn validate_update(class: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let [new, old] = [class, old].map(|class| class.at(&["spec", "controller"]));
    let path = Path::of("spec.controller");
    immutable_text(&mut errors, &path, new, old, "field is immutable");
    whole(&mut errors, class);
    errors.into_list()
}

fn whole(errors: &mut Errors, class: Ref<'_>) {
    let path = Path::of("spec");
    let controller = class.str_at(&["spec", "controller"]);
    let at = path.child("controller");
    if controller.len() > MAX_CONTROLLER {
        errors.too_long(&at, MAX_CONTROLLER);
    }
    domain_prefixed_path(errors, &at, controller);
    let parameters = class.get("spec").and_then(|spec| present(spec, "parameters"));
    if let Some(parameters) = parameters {
        reference(errors, &path.child("parameters"), parameters);
    }
}

fn reference(errors: &mut Errors, path: &Path<'_>, parameters: Ref<'_>) {
    if let Some(group) = present(parameters, "apiGroup").and_then(Ref::as_str) {
        dns_subdomain(errors, &path.child("apiGroup"), group);
    }
    for name in ["kind", "name"] {
        let value = parameters.str(name);
        errors.all_invalid(&path.child(name), value, path_segment_problems(value, false));
    }
    scope(errors, path, parameters);
    // Upstream declares these, and reports them last.
    for name in ["kind", "name"] {
        if parameters.str(name).is_empty() {
            errors.required(&path.child(name), "");
        }
    }
}

fn scope(errors: &mut Errors, path: &Path<'_>, parameters: Ref<'_>) {
    let at = path.child("namespace");
    let namespace = present(parameters, "namespace").and_then(Ref::as_str);
    match (present(parameters, "scope").and_then(Ref::as_str), namespace) {
        (None, _) => errors.required(&path.child("scope"), ""),
        (Some("Namespace"), None) => errors.required(&at, "`parameters.scope` is set to 'Namespace'"),
        (Some("Namespace"), Some(namespace)) => dns_label(errors, &at, namespace),
        (Some("Cluster"), Some(_)) => errors.forbidden(&at, "`parameters.scope` is set to 'Cluster'"),
        (Some("Cluster"), None) => {}
        (Some(other), _) => errors.not_supported(&path.child("scope"), other, &SCOPES),
    }
}
