//! The quality-of-service class a pod's requests and limits amount to.

use super::level;
use machinery_meta::quantity::Quantity;
use machinery_schema::Ref;

/// `Guaranteed`, `Burstable` or `BestEffort`.
pub(crate) fn class(pod: Ref<'_>) -> &'static str {
    let Some(spec) = pod.get("spec") else {
        return "BestEffort";
    };
    // Resources of the pod as a whole decide alone.
    let deciding: Vec<Ref<'_>> = match level::is_set(spec) {
        true => vec![spec],
        false => spec
            .list("containers")
            .chain(spec.list("initContainers"))
            .collect(),
    };
    let mut any = false;
    let mut guaranteed = true;
    for container in deciding {
        for name in ["cpu", "memory"] {
            let (request, limit) = (
                amount(container, "requests", name),
                amount(container, "limits", name),
            );
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && request.is_none_or(|request| Some(request) == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// A positive amount.
fn amount(container: Ref<'_>, list: &str, name: &str) -> Option<Quantity> {
    let text = container.at(&["resources", list, name])?.as_str()?;
    let amount: Quantity = text.parse().ok()?;
    (!amount.is_zero() && !amount.is_negative()).then_some(amount)
}
