//! Probes and lifecycle hooks.

use super::ports::{port_number, port_or_name};
use crate::shared::validation::{Errors, Path, non_negative, one_of};
use machinery_meta::syntax;
use machinery_schema::Ref;

/// Hooks and probes of a container that may have them.
pub fn validate_all(errors: &mut Errors, path: &Path<'_>, container: Ref<'_>, spec: Ref<'_>) {
    if let Some(lifecycle) = container.get("lifecycle") {
        let at = path.child("lifecycle");
        for hook in ["postStart", "preStop"] {
            if let Some(handler) = lifecycle.get(hook) {
                validate_handler(errors, &at.child(hook), handler, spec);
            }
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get(name) {
            validate_probe(errors, &path.child(name), name, probe, spec);
        }
    }
}

fn validate_probe(errors: &mut Errors, path: &Path<'_>, name: &str, probe: Ref<'_>, spec: Ref<'_>) {
    validate_handler(errors, path, probe, spec);
    for field in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        non_negative(errors, path, probe, field);
    }
    let grace = probe.get("terminationGracePeriodSeconds").and_then(Ref::as_i64);
    if let Some(seconds) = grace.filter(|seconds| *seconds <= 0) {
        errors.invalid(
            &path.child("terminationGracePeriodSeconds"),
            seconds,
            "must be greater than 0",
        );
    }
    if name == "readinessProbe" {
        if let Some(seconds) = grace {
            let detail = "must not be set for readinessProbes";
            errors.invalid(&path.child("terminationGracePeriodSeconds"), seconds, detail);
        }
    } else {
        let threshold = probe
            .get("successThreshold")
            .and_then(Ref::as_i64)
            .unwrap_or_default();
        if threshold != 1 {
            errors.invalid(&path.child("successThreshold"), threshold, "must be 1");
        }
    }
}

type Check = fn(&mut Errors, &Path<'_>, Ref<'_>, Ref<'_>);

/// Actions of a probe or hook; exactly one must be set.
const HANDLERS: [(&str, Check); 5] = [
    ("exec", exec),
    ("httpGet", http_get),
    ("tcpSocket", tcp_socket),
    ("grpc", grpc),
    ("sleep", sleep),
];

fn validate_handler(errors: &mut Errors, path: &Path<'_>, handler: Ref<'_>, spec: Ref<'_>) {
    let mut found = false;
    for (name, check) in HANDLERS {
        let Some(action) = handler.get(name) else { continue };
        if found {
            errors.forbidden(&path.child(name), "may not specify more than 1 handler type");
        } else {
            check(errors, &path.child(name), action, spec);
        }
        found = true;
    }
    if !found {
        errors.required(path, "must specify a handler type");
    }
}

fn exec(errors: &mut Errors, path: &Path<'_>, action: Ref<'_>, _: Ref<'_>) {
    if action.list("command").len() == 0 {
        errors.required(&path.child("command"), "");
    }
}

fn http_get(errors: &mut Errors, path: &Path<'_>, action: Ref<'_>, _: Ref<'_>) {
    if action.str("path").is_empty() {
        errors.required(&path.child("path"), "");
    }
    port_or_name(errors, &path.child("port"), action.get("port"));
    one_of(errors, path, action, "scheme", &["HTTP", "HTTPS"], None);
    for header in action.list("httpHeaders") {
        let name = header.str("name");
        errors.all_invalid(&path.child("httpHeaders"), name, syntax::http_header_name(name));
    }
}

fn tcp_socket(errors: &mut Errors, path: &Path<'_>, action: Ref<'_>, _: Ref<'_>) {
    port_or_name(errors, &path.child("port"), action.get("port"));
}

fn grpc(errors: &mut Errors, path: &Path<'_>, action: Ref<'_>, _: Ref<'_>) {
    port_number(
        errors,
        &path.child("port"),
        action.get("port").and_then(Ref::as_i64).unwrap_or_default(),
    );
}

fn sleep(errors: &mut Errors, path: &Path<'_>, action: Ref<'_>, spec: Ref<'_>) {
    let seconds = action.get("seconds").and_then(Ref::as_i64).unwrap_or_default();
    let grace = spec
        .get("terminationGracePeriodSeconds")
        .and_then(Ref::as_i64)
        .unwrap_or_default();
    if !(0..=grace).contains(&seconds) {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.invalid(path, seconds, detail);
    }
}
