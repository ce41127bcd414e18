//! Validation of Ingresses.

use crate::engine::strategy::path_segment_problems;
use crate::shared::validation::{Errors, Path, load_balancer, present};
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;
use std::net::IpAddr;

const PATH_TYPES: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];
/// Sequences that a path may not contain or end with: proxies differ on whether they resolve them first.
const NOT_IN_PATHS: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
const NOT_AT_END: [&str; 2] = ["/..", "/."];
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// Every problem of a new Ingress.
pub fn validate(ingress: Ref<'_>) -> Vec<FieldError> {
    let mut problems = validate_update(ingress);
    let annotated = ingress
        .at(&["metadata", "annotations", CLASS_ANNOTATION])
        .and_then(Ref::as_str);
    let class = ingress.at(&["spec", "ingressClassName"]).and_then(Ref::as_str);
    if let (Some(annotated), Some(class)) = (annotated, class)
        && annotated != class
    {
        let mut errors = Errors::new();
        let path = Path::of("annotations");
        let detail = "must match `ingressClassName` when both are specified";
        errors.invalid(&path.child(CLASS_ANNOTATION), annotated, detail);
        problems.extend(errors.into_list());
    }
    problems
}

/// Every problem of a changed status.
pub fn validate_status(ingress: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    load_balancer(&mut errors, ingress, old, false);
    errors.into_list()
}

/// Every problem of a changed Ingress.
pub fn validate_update(ingress: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let Some(spec) = ingress.get("spec") else {
        return Vec::new();
    };
    let path = Path::of("spec");
    let backend = present(spec, "defaultBackend");
    if spec.list("rules").len() == 0 && backend.is_none() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.invalid(&path, Shown("null".into()), detail);
    }
    if let Some(backend) = backend {
        validate_backend(&mut errors, &path.child("defaultBackend"), backend);
    }
    let rules = path.child("rules");
    for (index, rule) in spec.list("rules").enumerate() {
        validate_rule(&mut errors, &rules.index(index), rule);
    }
    let secured = path.child("tls");
    for (index, tls) in spec.list("tls").enumerate() {
        validate_tls(&mut errors, &secured.index(index), tls);
    }
    let class = spec.str("ingressClassName");
    if present(spec, "ingressClassName").is_some() {
        errors.all_invalid(
            &path.child("ingressClassName"),
            class,
            syntax::dns1123_subdomain(class),
        );
    }
    errors.into_list()
}

/// A host, or all hosts below one.
fn host_problems(host: &str) -> Vec<String> {
    if host.contains('*') {
        syntax::wildcard_dns1123_subdomain(host)
    } else {
        syntax::dns1123_subdomain(host)
    }
}

fn validate_tls(errors: &mut Errors, path: &Path<'_>, tls: Ref<'_>) {
    let hosts = path.child("hosts");
    for (index, host) in tls.list("hosts").enumerate() {
        let host = host.as_str().unwrap_or_default();
        errors.all_invalid(&hosts.index(index), host, host_problems(host));
    }
    let secret = tls.str("secretName");
    if !secret.is_empty() {
        errors.all_invalid(
            &path.child("secretName"),
            secret,
            syntax::dns1123_subdomain(secret),
        );
    }
}

fn validate_rule(errors: &mut Errors, path: &Path<'_>, rule: Ref<'_>) {
    let host = rule.str("host");
    let at = path.child("host");
    if host.parse::<IpAddr>().is_ok() {
        errors.invalid(&at, host, "must be a DNS name, not an IP address");
    }
    if !host.is_empty() {
        errors.all_invalid(&at, host, host_problems(host));
    }
    let Some(http) = present(rule, "http") else {
        return;
    };
    let http_path = path.child("http");
    let paths = http_path.child("paths");
    if http.list("paths").len() == 0 {
        errors.required(&paths, "");
    }
    for (index, entry) in http.list("paths").enumerate() {
        validate_path(errors, &paths.index(index), entry);
    }
}

fn validate_path(errors: &mut Errors, at: &Path<'_>, entry: Ref<'_>) {
    if present(entry, "pathType").is_none() {
        errors.required(&at.child("pathType"), "pathType must be specified");
        return;
    }
    let (kind, text) = (entry.str("pathType"), entry.str("path"));
    let here = at.child("path");
    match kind {
        "Exact" | "Prefix" => exact_path(errors, &here, text),
        "ImplementationSpecific" if !text.is_empty() && !text.starts_with('/') => {
            errors.invalid(&here, text, "must be an absolute path");
        }
        "ImplementationSpecific" => {}
        other => errors.not_supported(&at.child("pathType"), other, &PATH_TYPES),
    }
    if let Some(backend) = entry.get("backend") {
        validate_backend(errors, &at.child("backend"), backend);
    }
}

fn exact_path(errors: &mut Errors, path: &Path<'_>, text: &str) {
    if !text.starts_with('/') {
        errors.invalid(path, text, "must be an absolute path");
    }
    for unwanted in NOT_IN_PATHS.iter().filter(|unwanted| text.contains(**unwanted)) {
        errors.invalid(path, text, format!("must not contain '{unwanted}'"));
    }
    for unwanted in NOT_AT_END.iter().filter(|unwanted| text.ends_with(**unwanted)) {
        errors.invalid(path, text, format!("cannot end with '{unwanted}'"));
    }
}

fn validate_backend(errors: &mut Errors, path: &Path<'_>, backend: Ref<'_>) {
    match (present(backend, "resource"), present(backend, "service")) {
        (Some(_), Some(_)) => errors.invalid(path, "", "cannot set both resource and service backends"),
        (Some(resource), None) => validate_resource(errors, &path.child("resource"), resource),
        (None, Some(service)) => validate_service(errors, path, service),
        (None, None) => errors.invalid(path, "", "resource or service backend is required"),
    }
}

fn validate_resource(errors: &mut Errors, path: &Path<'_>, resource: Ref<'_>) {
    if let Some(group) = present(resource, "apiGroup").and_then(Ref::as_str) {
        errors.all_invalid(&path.child("apiGroup"), group, syntax::dns1123_subdomain(group));
    }
    for name in ["kind", "name"] {
        let (at, value) = (path.child(name), resource.str(name));
        if value.is_empty() {
            errors.required(&at, "");
        } else {
            errors.all_invalid(&at, value, path_segment_problems(value, false));
        }
    }
}

fn validate_service(errors: &mut Errors, path: &Path<'_>, service: Ref<'_>) {
    let at = path.child("service");
    let name = service.str("name");
    if name.is_empty() {
        errors.required(&at.child("name"), "");
    } else {
        errors.all_invalid(&at.child("name"), name, syntax::dns1123_label(name));
    }
    let port = at.child("port");
    let number = service.at(&["port", "number"]).and_then(Ref::as_i64).unwrap_or(0);
    match (service.str_at(&["port", "name"]), number) {
        ("", 0) => errors.required(path, "port name or number is required"),
        ("", number) => {
            for problem in syntax::port_number(number) {
                errors.invalid(&port.child("number"), number, problem);
            }
        }
        (name, 0) => errors.all_invalid(&port.child("name"), name, syntax::port_name(name)),
        _ => errors.invalid(path, "", "cannot set both port name & port number"),
    }
}
