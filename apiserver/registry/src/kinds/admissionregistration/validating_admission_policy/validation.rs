//! Validation of ValidatingAdmissionPolicies.

use crate::kinds::admissionregistration::expressions::{Known, Written, conditions_of};
use crate::kinds::admissionregistration::policies::{Compiler, Stored, same_conditions, spec};
use crate::kinds::admissionregistration::static_names;
use crate::shared::validation::{Errors, Path, conditions, one_of};
use machinery_cel::Type;
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;
use std::collections::HashSet;

const MAX_ANNOTATIONS: usize = 20;
/// Bytes of an expression for an annotation; what it makes may be twice as long.
const MAX_VALUE_EXPRESSION: usize = 5 * 1024;
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];

/// Every problem of a new policy.
pub(super) fn create(policy: Ref<'_>) -> Vec<FieldError> {
    let mut errors = whole(policy, None);
    static_names::created(&mut errors, policy);
    errors.into_list()
}

/// Every problem of a changed policy.
pub(super) fn update(policy: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    whole(policy, Some(old)).into_list()
}

/// Every problem of a status.
pub(super) fn status(policy: Ref<'_>, _: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let Some(status) = policy.get("status") else {
        return Vec::new();
    };
    let path = Path::of("status");
    let checking = path.child("typeChecking");
    let warnings = checking.child("expressionWarnings");
    let all = status.get("typeChecking").into_iter();
    for (index, own) in all.flat_map(|own| own.list("expressionWarnings")).enumerate() {
        let at = warnings.index(index);
        for name in ["warning", "fieldRef"] {
            if own.str(name).trim().is_empty() {
                errors.required(&at.child(name), "");
            }
        }
    }
    conditions(&mut errors, &path.child("conditions"), status);
    errors.into_list()
}

/// Expressions of the stored policy.
#[derive(Default)]
struct Expressions<'a> {
    messages: Known<'a>,
    values: Known<'a>,
}

fn whole(policy: Ref<'_>, old: Option<Ref<'_>>) -> Errors {
    let mut errors = Errors::new();
    let Some(own) = policy.get("spec") else {
        errors.required(&Path::of("spec"), "");
        return errors;
    };
    let old = old.and_then(|old| old.get("spec"));
    let texts = |list: &'static str, name: &'static str| -> Known<'_> {
        let of = old.into_iter().flat_map(|old| old.list(list));
        of.map(|own| own.str(name)).collect()
    };
    let stored = Stored {
        conditions: old.into_iter().flat_map(conditions_of).collect(),
        usual: texts("validations", "expression"),
        same_conditions: old.is_some_and(|old| same_conditions(own, old)),
    };
    let expressions = Expressions {
        messages: texts("validations", "messageExpression"),
        values: texts("auditAnnotations", "valueExpression"),
    };
    let (path, compiler) = (Path::of("spec"), Compiler::new(own, false));
    spec(&mut errors, &path, own, &compiler, &stored, |_, _| {});
    let checks = path.child("validations");
    let notes = path.child("auditAnnotations");
    if own.list("validations").len() == 0 && own.list("auditAnnotations").len() == 0 {
        let detail = "validations or auditAnnotations must contain at least one item";
        errors.required(&checks, detail);
        errors.required(&notes, detail);
    }
    for (index, check) in own.list("validations").enumerate() {
        validation(
            &mut errors,
            &checks.index(index),
            check,
            &compiler,
            &stored,
            &expressions,
        );
    }
    annotations(&mut errors, &notes, policy, own, &compiler, &expressions);
    errors
}

fn validation(
    errors: &mut Errors,
    path: &Path<'_>,
    own: Ref<'_>,
    compiler: &Compiler,
    stored: &Stored<'_>,
    expressions: &Expressions<'_>,
) {
    let (text, at) = (own.str("expression"), path.child("expression"));
    match text.trim() {
        "" => errors.required(&at, "expression is not specified"),
        _ => {
            compiler.usual(errors, &at, Written::of(text, &stored.usual), &[Type::Bool]);
        }
    }
    let (text, at) = (own.str("messageExpression"), path.child("messageExpression"));
    match (text, text.trim()) {
        ("", _) => {}
        (_, "") => errors.invalid(&at, text, "must be non-empty if specified"),
        _ => compiler.message(errors, &at, Written::of(text, &expressions.messages)),
    }
    let (text, at) = (own.str("message"), path.child("message"));
    if !text.is_empty() && text.trim().is_empty() {
        errors.invalid(&at, text, "must be non-empty if specified");
    } else if text.trim().contains(['\n', '\r']) {
        errors.invalid(&at, text, "must not contain line breaks");
    }
    one_of(errors, path, own, "reason", &REASONS, None);
}

fn annotations(
    errors: &mut Errors,
    path: &Path<'_>,
    policy: Ref<'_>,
    own: Ref<'_>,
    compiler: &Compiler,
    expressions: &Expressions<'_>,
) {
    if own.list("auditAnnotations").len() > MAX_ANNOTATIONS {
        let shown = own.get("auditAnnotations").map(Ref::to_json).unwrap_or_default();
        let detail = format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations");
        errors.invalid(path, Shown(shown), detail);
    }
    let (name, mut keys) = (policy.str_at(&["metadata", "name"]), HashSet::new());
    for (index, note) in own.list("auditAnnotations").enumerate() {
        let path = path.index(index);
        let (key, at) = (note.str("key"), path.child("key"));
        match name {
            "" => errors.invalid(&at, key, "requires metadata.name be non-empty"),
            _ => {
                let whole = format!("{name}/{key}");
                errors.all_invalid(&at, &whole, syntax::qualified_name(&whole));
            }
        }
        value(
            errors,
            &path.child("valueExpression"),
            note,
            compiler,
            expressions,
        );
        if !keys.insert(key) {
            errors.duplicate(&at, key);
        }
    }
}

fn value(
    errors: &mut Errors,
    path: &Path<'_>,
    own: Ref<'_>,
    compiler: &Compiler,
    expressions: &Expressions<'_>,
) {
    let shown = own.str("valueExpression");
    match shown.trim() {
        "" => errors.required(path, "valueExpression is not specified"),
        text if text.len() > MAX_VALUE_EXPRESSION => {
            errors.required(
                path,
                &format!("must not exceed {MAX_VALUE_EXPRESSION} bytes in length"),
            );
        }
        text => {
            let written = Written {
                text,
                shown,
                is_known: expressions.values.contains(shown),
            };
            compiler.usual(errors, path, written, &[Type::String, Type::Null]);
        }
    }
}
