//! What makes RuntimeClasses and FlowSchemas acceptable.

use crate::validation::{Errors, Path, immutable};
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;

const MAX_PRECEDENCE: i64 = 10_000;

/// Every problem of a new RuntimeClass.
pub(crate) fn validate_runtime_class(class: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let handler = class.str("handler");
    if handler.is_empty() {
        errors.required(&Path::of("handler"), "");
    } else {
        errors.all_invalid(&Path::of("handler"), handler, syntax::dns1123_label(handler));
    }
    errors.into_list()
}

/// Pods were started with the handler.
pub(crate) fn validate_runtime_class_update(class: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let at = Path::of("handler");
    immutable(
        &mut errors,
        &at,
        class.get("handler"),
        old.get("handler"),
        "field is immutable",
    );
    errors.into_list()
}

/// Every problem of a FlowSchema.
pub(crate) fn validate_flow_schema(schema: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let Some(spec) = schema.get("spec") else {
        return Vec::new();
    };
    let path = Path::of("spec");
    let precedence = spec.get("matchingPrecedence").and_then(Ref::as_i64).unwrap_or(0);
    let at = path.child("matchingPrecedence");
    if precedence <= 0 {
        errors.invalid(&at, precedence, "must be a positive value");
    } else if precedence > MAX_PRECEDENCE {
        errors.invalid(
            &at,
            precedence,
            format!("must not be greater than {MAX_PRECEDENCE}"),
        );
    }
    let level = spec.str_at(&["priorityLevelConfiguration", "name"]);
    let reference = path.child("priorityLevelConfiguration");
    if level.is_empty() {
        errors.required(&reference.child("name"), "must reference a priority level");
    } else {
        errors.all_invalid(&reference.child("name"), level, syntax::dns1123_subdomain(level));
    }
    let rules = path.child("rules");
    for (index, rule) in spec.list("rules").enumerate() {
        let at = rules.index(index);
        if rule.list("subjects").len() == 0 {
            let detail = "subjects must contain at least one value";
            errors.required(&at.child("subjects"), detail);
        }
        if rule.list("resourceRules").len() + rule.list("nonResourceRules").len() == 0 {
            let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
            errors.required(&at, detail);
        }
    }
    errors.into_list()
}
