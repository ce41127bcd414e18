//! What makes an Event acceptable, in the core group and in events.k8s.io (upstream's `events.go` of validation).

use crate::validation::{Errors, Path};
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;

/// Every problem of an Event written through the core group. Cluster-scoped objects have theirs in `default`.
pub fn validate_core(event: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let namespace = event.str_at(&["metadata", "namespace"]);
    let involved = event.str_at(&["involvedObject", "namespace"]);
    let path = Path::of("involvedObject");
    if involved.is_empty() {
        if namespace != "default" && !namespace.is_empty() {
            errors.invalid(
                &path.child("namespace"),
                involved,
                "does not match event.namespace",
            );
        }
    } else if involved != namespace {
        errors.invalid(
            &path.child("namespace"),
            involved,
            "does not match event.namespace",
        );
    }
    errors.into_list()
}

/// Every problem of an Event written through events.k8s.io, which demands what the older form left open.
pub fn validate_events(event: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if event.get("eventTime").is_none_or(Ref::is_null) {
        errors.required(&Path::of("eventTime"), "");
    }
    let controller = event.str("reportingController");
    let at = Path::of("reportingController");
    if controller.is_empty() {
        errors.required(&at, "");
    }
    errors.all_invalid(&at, controller, syntax::qualified_name(controller));
    for (name, limit) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
        let value = event.str(name);
        if value.is_empty() {
            errors.required(&Path::of(name), "");
        } else if value.len() > limit {
            errors.invalid(
                &Path::of(name),
                "",
                format!("can have at most {limit} characters"),
            );
        }
    }
    let kind = event.str("type");
    if kind != "Normal" && kind != "Warning" {
        errors.invalid(&Path::of("type"), "", format!("has invalid value: {kind}"));
    }
    if event.str("note").len() > 1024 {
        errors.invalid(&Path::of("message"), "", "can have at most 1024 characters");
    }
    errors.into_list()
}
