//! Conditions of the common form (`metav1.Condition`).

use super::{Errors, Path, qualified};
use machinery_meta::syntax;
use machinery_schema::Ref;
use std::collections::BTreeSet;

const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
const MAX_REASON_BYTES: usize = 1024;
const MAX_MESSAGE_BYTES: usize = 32 * 1024;

/// Every problem of a status's list of conditions, and of each in it.
pub fn conditions(errors: &mut Errors, path: &Path<'_>, status: Ref<'_>) {
    let mut seen = BTreeSet::new();
    for (index, own) in status.list("conditions").enumerate() {
        let at = path.index(index);
        let kind = own.str("type");
        if !seen.insert(kind) {
            errors.duplicate(&at, kind);
        }
        condition(errors, &at, own);
    }
}

fn condition(errors: &mut Errors, path: &Path<'_>, own: Ref<'_>) {
    match own.str("type") {
        "" => errors.required(&path.child("type"), "is required"),
        kind => qualified(errors, &path.child("type"), kind),
    }
    match own.str("status") {
        "" => errors.required(&path.child("status"), ""),
        status if !STATUSES.contains(&status) => {
            errors.not_supported(&path.child("status"), status, &STATUSES);
        }
        _ => {}
    }
    let generation = own.get("observedGeneration").and_then(Ref::as_i64);
    if let Some(generation) = generation.filter(|generation| *generation < 0) {
        let detail = "must be greater than or equal to zero";
        errors.invalid(&path.child("observedGeneration"), generation, detail);
    }
    if own.str("lastTransitionTime").is_empty() {
        errors.required(&path.child("lastTransitionTime"), "");
    }
    reason(errors, &path.child("reason"), own.str("reason"));
    if own.str("message").len() > MAX_MESSAGE_BYTES {
        errors.too_long(&path.child("message"), MAX_MESSAGE_BYTES);
    }
}

fn reason(errors: &mut Errors, path: &Path<'_>, reason: &str) {
    if reason.is_empty() {
        return errors.required(path, "");
    }
    errors.all_invalid(path, reason, syntax::condition_reason(reason));
    if reason.len() > MAX_REASON_BYTES {
        errors.too_long(path, MAX_REASON_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_schema::Tree;

    #[track_caller]
    fn check(condition: &str, expected: &[&str]) {
        let status = Tree::from_json(&format!(r#"{{"conditions":[{condition}]}}"#)).unwrap();
        let mut errors = Errors::new();
        conditions(&mut errors, &Path::of("conditions"), status.root());
        let found: Vec<String> = errors.into_list().iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{condition}");
    }

    #[test]
    fn conditions_have_status_time_and_reason() {
        let since = r#""lastTransitionTime":"2020-01-01T00:00:00Z""#;
        check(
            &format!(
                r#"{{"type":"a.b/C","status":"Unknown","reason":"A:b_","observedGeneration":0,{since}}}"#
            ),
            &[],
        );
        check(
            "{}",
            &[
                "conditions[0].type: Required value: is required",
                "conditions[0].status: Required value",
                "conditions[0].lastTransitionTime: Required value",
                "conditions[0].reason: Required value",
            ],
        );
        check(
            &format!(r#"{{"type":"A","status":"Perhaps","reason":"R","observedGeneration":-1,{since}}}"#),
            &[
                r#"conditions[0].status: Unsupported value: "Perhaps": supported values: "False", "True", "Unknown""#,
                "conditions[0].observedGeneration: Invalid value: -1: must be greater than or equal to zero",
            ],
        );
        let one = format!(r#"{{"type":"A","status":"True","reason":"R","message":"m",{since}}}"#);
        check(
            &format!("{one},{one}"),
            &[r#"conditions[1]: Duplicate value: "A""#],
        );
    }
}
