//! Validation of Deployments (upstream's `pkg/apis/apps/validation`).

use crate::kinds::apps::workload::{self, Named};
use crate::shared::validation::{
    Errors, Path, int_or_percent, is_zero_amount, non_negative, not_over_100_percent,
};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_schema::Ref;

const NAMED: Named = Named {
    in_selector: "deployment",
    in_template: "ReplicaSet",
    unreadable: Some("invalid label selector"),
};

/// Every problem of a Deployment.
pub fn validate(deployment: Ref<'_>) -> Vec<FieldError> {
    workload::validate(deployment, validate_spec)
}

/// Every problem of a change: those of the new one, and the selector stays.
pub fn validate_update(deployment: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = validate(deployment);
    errors.extend(workload::fixed(deployment, old, &["selector"]));
    errors
}

fn validate_spec(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    non_negative(errors, path, spec, "replicas");
    workload::required_selector(errors, path, spec, NAMED);
    if let Some(template) = spec.get("template") {
        workload::template(errors, path, spec, template, NAMED);
    }
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
