//! What makes a Deployment acceptable (upstream's `pkg/apis/apps/validation`).

use crate::apps::replica_set::validation::validate_template;
use crate::validation::{
    Errors, Path, immutable, int_or_percent, is_zero_amount, label_selector, non_negative,
    not_over_100_percent, present,
};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_schema::Ref;

/// Every problem of a Deployment.
pub fn validate(deployment: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if let Some(spec) = deployment.get("spec") {
        validate_spec(&mut errors, &Path::of("spec"), spec);
    }
    errors.into_list()
}

/// Every problem of a change: those of the new one, and the selector stays.
pub fn validate_update(deployment: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("spec");
    if let Some(spec) = deployment.get("spec") {
        validate_spec(&mut errors, &path, spec);
    }
    let selector = |object: Ref<'_>| object.at(&["spec", "selector"]).map(Ref::to_json);
    if selector(deployment) != selector(old) {
        immutable(
            &mut errors,
            &path.child("selector"),
            deployment.at(&["spec", "selector"]),
            old.at(&["spec", "selector"]),
            "field is immutable",
        );
    }
    errors.into_list()
}

fn validate_spec(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    non_negative(errors, path, spec, "replicas");
    let selector_path = path.child("selector");
    match present(spec, "selector") {
        None => errors.required(&selector_path, ""),
        Some(selector) => {
            label_selector(errors, &selector_path, selector);
            if selector.is_empty() {
                let detail = "empty selector is invalid for deployment";
                errors.invalid(&selector_path, Shown(selector.to_json()), detail);
            }
        }
    }
    validate_template(errors, path, spec);
    strategy(errors, &path.child("strategy"), spec);
    non_negative(errors, path, spec, "minReadySeconds");
    non_negative(errors, path, spec, "revisionHistoryLimit");
    non_negative(errors, path, spec, "progressDeadlineSeconds");
    let number = |name| spec.get(name).and_then(Ref::as_i64);
    let deadline = number("progressDeadlineSeconds");
    if let Some(seconds) =
        deadline.filter(|seconds| *seconds <= number("minReadySeconds").unwrap_or_default())
    {
        errors.invalid(
            &path.child("progressDeadlineSeconds"),
            seconds,
            "must be greater than minReadySeconds",
        );
    }
}

fn strategy(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let Some(strategy) = spec.get("strategy") else {
        return;
    };
    let rolling = path.child("rollingUpdate");
    match (strategy.str("type"), strategy.get("rollingUpdate")) {
        ("Recreate", Some(_)) => {
            errors.forbidden(
                &rolling,
                "may not be specified when strategy `type` is 'Recreate'",
            );
        }
        ("RollingUpdate", None) => {
            errors.required(&rolling, "this should be defaulted and never be nil");
        }
        ("RollingUpdate", Some(update)) => rolling_update(errors, &rolling, update),
        ("Recreate", None) => {}
        _ => errors.not_supported(path, Shown(strategy.to_json()), &["Recreate", "RollingUpdate"]),
    }
}

fn rolling_update(errors: &mut Errors, path: &Path<'_>, update: Ref<'_>) {
    let (surge, unavailable) = (update.get("maxSurge"), update.get("maxUnavailable"));
    if let Some(unavailable) = unavailable {
        int_or_percent(errors, &path.child("maxUnavailable"), unavailable);
    }
    if let Some(surge) = surge {
        int_or_percent(errors, &path.child("maxSurge"), surge);
    }
    let at = path.child("maxUnavailable");
    if is_zero_amount(surge) && is_zero_amount(unavailable) {
        let shown = unavailable.map_or_else(|| "0".into(), Ref::to_json);
        errors.invalid(&at, Shown(shown), "may not be 0 when `maxSurge` is 0");
    }
    if let Some(unavailable) = unavailable {
        not_over_100_percent(errors, &at, unavailable);
    }
}
