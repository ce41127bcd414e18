//! Validation of HorizontalPodAutoscalers, in either of their versions.

use crate::engine::strategy::path_segment_problems;
use crate::shared::validation::{Errors, Path, present};
use machinery_meta::FieldError;
use machinery_schema::Ref;

const METRICS: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
const SELECT_POLICIES: [&str; 3] = ["Disabled", "Max", "Min"];
const SCALING_POLICIES: [&str; 2] = ["Percent", "Pods"];
const MAX_PERIOD_SECONDS: i64 = 1800;
const MAX_WINDOW_SECONDS: i64 = 3600;
/// Each look of the controller fetches all of them.
const MAX_METRICS: usize = 100;

/// Every problem of an autoscaler, new or changed.
pub(crate) fn validate(autoscaler: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let Some(spec) = autoscaler.get("spec") else {
        return Vec::new();
    };
    let path = Path::of("spec");
    let number = |name: &str| spec.get(name).and_then(Ref::as_i64);
    let (least, most) = (number("minReplicas"), number("maxReplicas").unwrap_or(0));
    let at = path.child("maxReplicas");
    if least.is_some_and(|least| most < least) {
        errors.invalid(&at, most, "must be greater than or equal to `minReplicas`");
    }
    if let Some(target) = spec.get("scaleTargetRef") {
        reference(&mut errors, &path.child("scaleTargetRef"), target);
    }
    metrics(&mut errors, &path.child("metrics"), spec, least);
    for direction in ["scaleUp", "scaleDown"] {
        let behavior = path.child("behavior");
        if let Some(rules) = spec.at(&["behavior", direction]) {
            scaling_rules(&mut errors, &behavior.child(direction), rules);
        }
    }
    if let Some(least) = least.filter(|least| *least < 0) {
        errors.invalid(
            &path.child("minReplicas"),
            least,
            "must be greater than or equal to 0",
        );
    }
    match most {
        0 => errors.required(&at, ""),
        most if most < 0 => errors.invalid(&at, most, "must be greater than or equal to 1"),
        _ => {}
    }
    errors.into_list()
}

fn reference(errors: &mut Errors, path: &Path<'_>, target: Ref<'_>) {
    for name in ["kind", "name"] {
        let value = target.str(name);
        if value.is_empty() {
            errors.required(&path.child(name), "");
        } else {
            errors.all_invalid(&path.child(name), value, path_segment_problems(value, false));
        }
    }
    let version = target.str("apiVersion");
    let detail = match version.split('/').collect::<Vec<_>>().as_slice() {
        [_] | ["", _] => "apiVersion must specify API group".to_owned(),
        [_, _] => return,
        _ => format!("unexpected GroupVersion string: {version}"),
    };
    // A name without a slash is a version of the core group, where nothing but ReplicationController scales.
    if !(version == "v1" && target.str("kind") == "ReplicationController") {
        errors.invalid(&path.child("apiVersion"), version, detail);
    }
}

fn metrics(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, least: Option<i64>) {
    let count = spec.list("metrics").count();
    if count > MAX_METRICS {
        return errors.too_many(path, count, MAX_METRICS);
    }
    for (index, metric) in spec.list("metrics").enumerate() {
        metric_source(errors, &path.index(index), metric);
    }
    let mut kinds = spec.list("metrics").map(|metric| metric.str("type"));
    if least == Some(0) && !kinds.any(|kind| kind == "Object" || kind == "External") {
        let detail =
            "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(path, detail);
    }
}

/// The member that a type of metric is described by.
fn member_of(kind: &str) -> &'static str {
    match kind {
        "ContainerResource" => "containerResource",
        "External" => "external",
        "Object" => "object",
        "Pods" => "pods",
        _ => "resource",
    }
}

fn metric_source(errors: &mut Errors, path: &Path<'_>, metric: Ref<'_>) {
    let kind = metric.str("type");
    if kind.is_empty() {
        errors.required(&path.child("type"), "must specify a metric source type");
    }
    if !METRICS.contains(&kind) {
        errors.not_supported(&path.child("type"), kind, &METRICS);
        return;
    }
    let member = member_of(kind);
    match present(metric, member) {
        None => {
            let detail = "must populate information for the given metric source";
            errors.required(&path.child(member), detail);
        }
        Some(source) => {
            let at = path.child(member);
            if member == "resource" || member == "containerResource" {
                if source.str("name").is_empty() {
                    errors.required(&at.child("name"), "must specify a resource name");
                }
            } else if source.str_at(&["metric", "name"]).is_empty() {
                let metric = at.child("metric");
                errors.required(&metric.child("name"), "must specify a metric name");
            }
            metric_target(errors, &at.child("target"), member, source.get("target"));
        }
    }
    for kind in METRICS {
        let other = member_of(kind);
        if other != member && present(metric, other).is_some() {
            errors.forbidden(&path.child(other), "must populate the given metric source only");
        }
    }
}

fn metric_target(errors: &mut Errors, path: &Path<'_>, member: &str, target: Option<Ref<'_>>) {
    let Some(target) = target else { return };
    match target.str("type") {
        "" => errors.required(&path.child("type"), "must specify a metric target type"),
        "Utilization" | "Value" | "AverageValue" => {}
        other => {
            let detail = "must be either Utilization, Value, or AverageValue";
            errors.invalid(&path.child("type"), other, detail);
        }
    }
    let has = |name: &str| present(target, name).is_some();
    if let Some(percent) = target
        .get("averageUtilization")
        .and_then(Ref::as_i64)
        .filter(|p| *p < 1)
    {
        errors.invalid(
            &path.child("averageUtilization"),
            percent,
            "must be greater than 0",
        );
    }
    match member {
        "resource" | "containerResource" => match (has("averageUtilization"), has("averageValue")) {
            (false, false) => {
                let detail = "must set either a target raw value or a target utilization";
                errors.required(&path.child("averageUtilization"), detail);
            }
            (true, true) => {
                let detail = "may not set both a target raw value and a target utilization";
                errors.forbidden(&path.child("averageValue"), detail);
            }
            _ => {}
        },
        "pods" if !has("averageValue") => {
            let detail = "must specify a positive target averageValue";
            errors.required(&path.child("averageValue"), detail);
        }
        "object" if !has("value") && !has("averageValue") => {
            let detail = "must set either a target value or averageValue";
            errors.required(&path.child("averageValue"), detail);
        }
        "external" if !has("value") && !has("averageValue") => {
            let detail = "must set either a target value for metric or a per-pod target";
            errors.required(&path.child("averageValue"), detail);
        }
        _ => {}
    }
}

fn scaling_rules(errors: &mut Errors, path: &Path<'_>, rules: Ref<'_>) {
    let at = path.child("stabilizationWindowSeconds");
    match rules.get("stabilizationWindowSeconds").and_then(Ref::as_i64) {
        Some(seconds) if seconds < 0 => {
            errors.invalid(&at, seconds, "must be greater than or equal to zero");
        }
        Some(seconds) if seconds > MAX_WINDOW_SECONDS => {
            let detail = format!("must be less than or equal to {MAX_WINDOW_SECONDS}");
            errors.invalid(&at, seconds, detail);
        }
        _ => {}
    }
    let select = rules.str("selectPolicy");
    if !select.is_empty() && !SELECT_POLICIES.contains(&select) {
        errors.not_supported(&path.child("selectPolicy"), select, &SELECT_POLICIES);
    }
    let policies = path.child("policies");
    if rules.list("policies").len() == 0 {
        errors.required(&policies, "must specify at least one Policy");
    }
    for (index, policy) in rules.list("policies").enumerate() {
        scaling_policy(errors, &policies.index(index), policy);
    }
}

fn scaling_policy(errors: &mut Errors, path: &Path<'_>, policy: Ref<'_>) {
    let kind = policy.str("type");
    if !SCALING_POLICIES.contains(&kind) {
        errors.not_supported(&path.child("type"), kind, &SCALING_POLICIES);
    }
    for name in ["value", "periodSeconds"] {
        let value = policy.get(name).and_then(Ref::as_i64).unwrap_or(0);
        if value <= 0 {
            errors.invalid(&path.child(name), value, "must be greater than zero");
        } else if name == "periodSeconds" && value > MAX_PERIOD_SECONDS {
            let detail = format!("must be less than or equal to {MAX_PERIOD_SECONDS}");
            errors.invalid(&path.child(name), value, detail);
        }
    }
}
