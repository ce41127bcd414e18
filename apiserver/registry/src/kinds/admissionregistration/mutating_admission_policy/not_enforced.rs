//! Policies whose failure refuses requests, as long as nothing evaluates them.

use machinery_schema::Ref;

/// The policy's own failure policy.
pub(crate) fn refusal(policy: Ref<'_>) -> Option<(String, &'static str)> {
    let ignores = policy.str_at(&["spec", "failurePolicy"]) == "Ignore";
    let found = ("spec.failurePolicy: Fail", "admission policies are not evaluated");
    (!ignores).then(|| (found.0.to_owned(), found.1))
}
