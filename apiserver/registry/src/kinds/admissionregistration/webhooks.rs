//! Rules that both kinds of webhook configurations have.

use machinery_schema::Ref;

/// The first webhook whose failure refuses requests, as long as webhooks are not called.
pub(super) fn refusal(configuration: Ref<'_>) -> Option<(String, &'static str)> {
    let fails = |webhook: &Ref<'_>| webhook.str("failurePolicy") != "Ignore";
    let at = configuration
        .list("webhooks")
        .position(|webhook| fails(&webhook))?;
    Some((
        format!("webhooks[{at}].failurePolicy: Fail"),
        "admission webhooks are not called",
    ))
}
