//! Webhooks with match conditions, as long as nothing evaluates these.

use crate::shared::not_enforced::{Field, field};
use machinery_schema::Ref;

const MISSING: &str = "match conditions are not evaluated, and a webhook that has some is not called";

/// The first webhook with conditions whose failure refuses requests.
pub(crate) fn refusal(configuration: Ref<'_>) -> Option<(String, &'static str)> {
    let guards = |webhook: &Ref<'_>| {
        webhook.list("matchConditions").len() > 0 && webhook.str("failurePolicy") != "Ignore"
    };
    let at = configuration
        .list("webhooks")
        .position(|webhook| guards(&webhook))?;
    Some((format!("webhooks[{at}].matchConditions"), MISSING))
}

/// Conditions of webhooks that may fail.
pub(crate) fn conditions(configuration: Ref<'_>) -> Vec<Field> {
    let webhooks = configuration.list("webhooks").enumerate();
    webhooks
        .filter(|(_, webhook)| webhook.list("matchConditions").len() > 0)
        .filter_map(|(at, webhook)| {
            field(
                format!("webhooks[{at}].matchConditions"),
                webhook.get("matchConditions"),
                MISSING,
            )
        })
        .collect()
}
