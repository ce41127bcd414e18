//! Validation of PodDisruptionBudgets (upstream's `pkg/apis/policy/validation`).

use crate::shared::validation::{
    Errors, Path, conditions, int_or_percent, label_selector, non_negative, not_over_100_percent, present,
};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_schema::Ref;

const POLICIES: [&str; 2] = ["AlwaysAllow", "IfHealthyBudget"];
const SELECTOR: [&str; 2] = ["spec", "selector"];

/// Every problem of a new PodDisruptionBudget.
pub(crate) fn validate(budget: Ref<'_>) -> Vec<FieldError> {
    spec(budget, true)
}

/// Every problem of a changed one; a selector that stays is not looked at again.
pub(crate) fn validate_update(new: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    spec(new, new.at(&SELECTOR) != old.at(&SELECTOR))
}

fn spec(budget: Ref<'_>, with_selector: bool) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let Some(spec) = budget.get("spec") else {
        return Vec::new();
    };
    let path = Path::of("spec");
    let amounts = ["minAvailable", "maxUnavailable"].map(|name| (name, present(spec, name)));
    if amounts.iter().all(|(_, amount)| amount.is_some()) {
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.invalid(&path, Shown(spec.to_json()), detail);
    }
    for (name, amount) in amounts {
        if let Some(amount) = amount {
            int_or_percent(&mut errors, &path.child(name), amount);
            not_over_100_percent(&mut errors, &path.child(name), amount);
        }
    }
    if let Some(selector) = present(spec, "selector").filter(|_| with_selector) {
        label_selector(&mut errors, &path.child("selector"), selector);
    }
    if let Some(policy) = present(spec, "unhealthyPodEvictionPolicy").and_then(Ref::as_str)
        && !POLICIES.contains(&policy)
    {
        errors.not_supported(&path.child("unhealthyPodEvictionPolicy"), policy, &POLICIES);
    }
    errors.into_list()
}

/// Every problem of a status.
pub(crate) fn validate_status(budget: Ref<'_>, _: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let Some(status) = budget.get("status") else {
        return Vec::new();
    };
    let path = Path::of("status");
    conditions(&mut errors, &path.child("conditions"), status);
    for name in [
        "disruptionsAllowed",
        "currentHealthy",
        "desiredHealthy",
        "expectedPods",
    ] {
        non_negative(&mut errors, &path, status, name);
    }
    errors.into_list()
}
