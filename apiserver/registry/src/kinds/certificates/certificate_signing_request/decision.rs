//! Validation of changed conditions of a CertificateSigningRequest (upstream's `pkg/apis/certificates/validation`).

use crate::kinds::certificates::x509;
use crate::shared::validation::{Errors, Path};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_schema::Ref;
use std::collections::HashSet;

/// Conditions that are true where they are there, and never go.
const LASTING: [&str; 3] = ["Approved", "Denied", "Failed"];
/// Conditions that are set through `approval` alone.
const DECISIONS: [&str; 2] = ["Approved", "Denied"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

/// Every problem of a change through the object itself, which neither decides nor signs.
pub(crate) fn validate_main(new: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    conditions(&mut errors, new, old);
    no_decision(&mut errors, new, old);
    if certificate(new) != certificate(old) {
        let detail = "updates may not set certificate content";
        errors.forbidden(&Path::of("status").child("certificate"), detail);
    }
    approved_and_denied(&mut errors, new, old);
    errors.into_list()
}

/// The same through `approval`, which decides.
pub(crate) fn validate_approval(new: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    conditions(&mut errors, new, old);
    approved_and_denied(&mut errors, new, old);
    errors.into_list()
}

/// The same through `status`: a signer neither approves nor denies, and signs once.
pub(crate) fn validate_status(new: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let status = Path::of("status");
    let at = status.child("certificate");
    let (before, after) = (certificate(old), certificate(new));
    conditions(&mut errors, new, old);
    no_decision(&mut errors, new, old);
    if !before.is_empty() && before != after {
        errors.forbidden(&at, "updates may not modify existing certificate content");
    }
    approved_and_denied(&mut errors, new, old);
    errors.into_list()
}

/// Refuses a new condition that approves, denies or fails the request.
fn no_decision(errors: &mut Errors, new: Ref<'_>, old: Ref<'_>) {
    for decision in DECISIONS {
        if count(&types(new), decision) > count(&types(old), decision) {
            errors.forbidden(
                &Path::of("status").child("conditions"),
                &format!("updates may not add a condition of type {decision:?}"),
            );
        }
    }
}

fn conditions(errors: &mut Errors, new_request: Ref<'_>, old_request: Ref<'_>) {
    let status = Path::of("status");
    let path = status.child("conditions");
    let (new, old) = (types(new_request), types(old_request));
    let (mut seen, repeated) = (HashSet::new(), repeats(&old));
    for (index, (kind, status)) in new.iter().enumerate() {
        one(errors, &path.index(index), kind, status);
        if !seen.insert(kind) && !repeated {
            errors.duplicate(&path.index(index).child("type"), *kind);
        }
    }
    // A certificate is looked at when it comes; those of old servers stay.
    let (before, after) = (certificate(old_request), certificate(new_request));
    if before != after
        && certificate_problem(before).is_none()
        && let Some(problem) = certificate_problem(after)
    {
        errors.invalid(&status.child("certificate"), "<certificate data>", problem);
    }
    for kind in LASTING {
        if count(&new, kind) < count(&old, kind) {
            errors.forbidden(
                &path,
                &format!("updates may not remove a condition of type {kind:?}"),
            );
        }
    }
}

fn certificate_problem(encoded: &str) -> Option<String> {
    let bytes = STANDARD.decode(encoded).unwrap_or_default();
    x509::certificates_problem(&bytes)
}

/// Upstream declares that a request is approved or denied.
fn approved_and_denied(errors: &mut Errors, new: Ref<'_>, old: Ref<'_>) {
    if is_undecided(&types(new)) && !is_undecided(&types(old)) {
        let parts = DECISIONS.map(|kind| format!(r#"conditions[{{"type": "{kind}"}}]"#));
        let shown = format!("{:?}", format!("{{{}}}", parts.join(", ")));
        let detail = format!("must specify at most one of: `{}`", parts.join("`, `"));
        errors.invalid(&Path::of("status").child("conditions"), Shown(shown), detail);
    }
}

fn certificate(request: Ref<'_>) -> &str {
    request
        .get("status")
        .map_or("", |status| status.str("certificate"))
}

/// The type and the status of each.
fn types(request: Ref<'_>) -> Vec<(&str, &str)> {
    let status = request.get("status").into_iter();
    let conditions = status.flat_map(|status| status.list("conditions"));
    conditions
        .map(|own| (own.str("type"), own.str("status")))
        .collect()
}

fn count(conditions: &[(&str, &str)], kind: &str) -> usize {
    conditions.iter().filter(|(own, _)| *own == kind).count()
}

fn repeats(conditions: &[(&str, &str)]) -> bool {
    let mut seen = HashSet::new();
    conditions.iter().any(|(kind, _)| !seen.insert(kind))
}

/// Reports whether the request is approved and denied at once.
fn is_undecided(conditions: &[(&str, &str)]) -> bool {
    count(conditions, "Approved") > 0 && count(conditions, "Denied") > 0
}

fn one(errors: &mut Errors, path: &Path<'_>, kind: &str, status: &str) {
    if kind.is_empty() {
        errors.required(&path.child("type"), "");
    }
    let allowed = if LASTING.contains(&kind) {
        &STATUSES[1..2]
    } else {
        &STATUSES[..]
    };
    if status.is_empty() {
        errors.required(&path.child("status"), "");
    } else if !allowed.contains(&status) {
        errors.not_supported(&path.child("status"), status, allowed);
    }
}

#[cfg(test)]
mod tests {
    use super::{Engine, STANDARD, validate_approval, validate_status};
    use machinery_schema::Tree;

    #[track_caller]
    fn check(old: &[&str], new: &[&str], expected: &[&str]) {
        let request = |kinds: &[&str]| {
            let list: Vec<String> = kinds
                .iter()
                .map(|kind| format!(r#"{{"type":"{kind}","status":"True"}}"#))
                .collect();
            Tree::from_json(&format!(r#"{{"status":{{"conditions":[{}]}}}}"#, list.join(","))).unwrap()
        };
        let found = validate_approval(request(new).root(), request(old).root());
        let found: Vec<String> = found.iter().map(|error| error.message()).collect();
        assert_eq!(found, expected, "{old:?} to {new:?}");
    }

    #[test]
    fn signing_signer_cannot_approve() {
        let request = |status: &str| Tree::from_json(&format!(r#"{{"status":{status}}}"#)).unwrap();
        let messages = |new: &str, old: &str| -> Vec<String> {
            let found = validate_status(request(new).root(), request(old).root());
            found.iter().map(|error| error.message()).collect()
        };
        let key = rcgen::KeyPair::generate().unwrap();
        let signed = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
        let pem = STANDARD.encode(signed.self_signed(&key).unwrap().pem());
        let conditions = r#""conditions":[{"type":"Approved","status":"True"}]"#;
        let approved = format!("{{{conditions}}}");
        let with = |certificate: &str| format!(r#"{{{conditions},"certificate":"{certificate}"}}"#);
        assert!(messages(&with(&pem), &approved).is_empty());
        assert_eq!(
            messages(&approved, "{}"),
            [r#"Forbidden: updates may not add a condition of type "Approved""#]
        );
        assert_eq!(
            messages(&approved, &with(&pem)),
            ["Forbidden: updates may not modify existing certificate content"]
        );
        assert_eq!(
            messages(&with("YQ=="), &approved),
            [r#"Invalid value: "<certificate data>": must contain at least one CERTIFICATE PEM block"#]
        );
    }

    #[test]
    fn signing_decision_is_single_and_final() {
        check(&[], &["Approved", "Other"], &[]);
        check(
            &["Approved"],
            &[],
            &[r#"Forbidden: updates may not remove a condition of type "Approved""#],
        );
        check(&[], &["Failed", "Failed"], &[r#"Duplicate value: "Failed""#]);
        check(
            &["Denied"],
            &["Denied", "Approved"],
            &[
                r#"Invalid value: "{conditions[{\"type\": \"Approved\"}], conditions[{\"type\": \"Denied\"}]}": must specify at most one of: `conditions[{"type": "Approved"}]`, `conditions[{"type": "Denied"}]`"#,
            ],
        );
    }
}
