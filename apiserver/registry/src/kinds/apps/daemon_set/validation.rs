//! Validation of DaemonSets (upstream's `pkg/apis/apps/validation`).

use crate::kinds::apps::workload::{self, Named};
use crate::shared::validation::{
    Errors, Path, int_or_percent, is_zero_amount, non_negative, not_over_100_percent, present,
};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_schema::Ref;

const NAMED: Named = Named {
    in_selector: "daemonset",
    in_template: "DaemonSet",
    unreadable: None,
};

/// Every problem of a DaemonSet.
pub fn validate(set: Ref<'_>) -> Vec<FieldError> {
    workload::validate(set, validate_spec)
}

/// Every problem of a change: the selector stays, and those of the new one.
pub fn validate_update(set: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = workload::fixed(set, old, &["selector"]);
    errors.extend(validate(set));
    errors
}

fn validate_spec(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    workload::selector(errors, path, spec, NAMED);
    if let Some(template) = spec.get("template") {
        workload::template(errors, path, spec, template, NAMED);
    }
    non_negative(errors, path, spec, "minReadySeconds");
    update_strategy(errors, &path.child("updateStrategy"), spec);
    non_negative(errors, path, spec, "revisionHistoryLimit");
}

fn update_strategy(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let Some(strategy) = spec.get("updateStrategy") else {
        return;
    };
    let rolling = path.child("rollingUpdate");
    match (strategy.str("type"), present(strategy, "rollingUpdate")) {
        ("OnDelete", _) => {}
        ("RollingUpdate", None) => errors.required(&rolling, ""),
        ("RollingUpdate", Some(update)) => rolling_update(errors, &rolling, update),
        _ => errors.not_supported(path, Shown(strategy.to_json()), &["RollingUpdate", "OnDelete"]),
    }
}

/// Either more pods than wanted for a while, or fewer.
fn rolling_update(errors: &mut Errors, path: &Path<'_>, update: Ref<'_>) {
    let amounts = ["maxUnavailable", "maxSurge"].map(|name| (name, update.get(name)));
    for check in [int_or_percent, not_over_100_percent] {
        for (name, amount) in &amounts {
            if let Some(amount) = amount {
                check(errors, &path.child(name), *amount);
            }
        }
    }
    let [(_, unavailable), (_, surge)] = amounts;
    match (is_zero_amount(unavailable), is_zero_amount(surge)) {
        (false, false) => {
            let shown = surge.map_or_else(|| "0".into(), Ref::to_json);
            let detail = "may not be set when maxUnavailable is non-zero";
            errors.invalid(&path.child("maxSurge"), Shown(shown), detail);
        }
        (true, true) => errors.required(&path.child("maxUnavailable"), "cannot be 0 when maxSurge is 0"),
        _ => {}
    }
}
