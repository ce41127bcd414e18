//! Bindings that deny requests, as long as nothing evaluates policies.

use machinery_schema::Ref;

/// The action that denies.
pub(crate) fn refusal(binding: Ref<'_>) -> Option<(String, &'static str)> {
    let mut actions = binding.get("spec")?.list("validationActions");
    let denies = actions.any(|action| action.as_str() == Some("Deny"));
    let found = (
        "spec.validationActions: Deny",
        "admission policies are not evaluated",
    );
    denies.then(|| (found.0.to_owned(), found.1))
}
