//! Validation of an autoscaler's metrics: where each is read, and the target that it is held against.

use super::validation::{MayBeCore, reference};
use crate::engine::strategy::path_segment_problems;
use crate::shared::validation::{Errors, Path, container_resource_name, dns_label, present, quantity};
use machinery_meta::Quantity;
use machinery_schema::Ref;

const METRICS: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
const TARGETS: [&str; 3] = ["Utilization", "Value", "AverageValue"];
/// Each look of the controller fetches all of them.
const MAX_METRICS: usize = 100;

/// Validates the metrics of a spec that requests no fewer than `least` pods.
pub(super) fn validate(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, least: Option<i64>) {
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

/// Members that describe metrics, in the order in which upstream looks for them.
const MEMBERS: [&str; 5] = ["object", "external", "pods", "resource", "containerResource"];

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
    // Of several the first is validated, whichever the type says.
    let given = MEMBERS
        .into_iter()
        .find_map(|own| Some((own, present(metric, own)?)));
    if let Some((own, source)) = given {
        let at = path.child(own);
        measured(errors, &at, own, source);
        let (target, target_path) = (present(source, "target"), at.child("target"));
        metric_target(errors, &target_path, target);
        amounts(errors, &target_path, own, target);
    }
    if present(metric, member).is_none() {
        let detail = "must populate information for the given metric source";
        errors.required(&path.child(member), detail);
    }
    for kind in METRICS {
        let other = member_of(kind);
        if other != member && present(metric, other).is_some() {
            errors.forbidden(&path.child(other), "must populate the given metric source only");
        }
    }
}

/// Validates the name of what is measured, and the object that it is measured on.
fn measured(errors: &mut Errors, path: &Path<'_>, member: &str, source: Ref<'_>) {
    match member {
        "resource" => {
            resource(errors, path, source);
        }
        "containerResource" => {
            if resource(errors, path, source) {
                container_resource_name(errors, &path.child("name"), source.str("name"));
            }
            container(errors, &path.child("container"), source.str("container"));
        }
        "object" => {
            let object = present(source, "describedObject");
            reference(errors, &path.child("describedObject"), object, MayBeCore::Yes);
            metric_name(errors, path, source);
        }
        _ => metric_name(errors, path, source),
    }
}

fn container(errors: &mut Errors, path: &Path<'_>, name: &str) {
    if name.is_empty() {
        errors.required(path, "must specify a container");
    } else {
        dns_label(errors, path, name);
    }
}

/// Says whether the resource has a name.
fn resource(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>) -> bool {
    let is_named = !source.str("name").is_empty();
    if !is_named {
        errors.required(&path.child("name"), "must specify a resource name");
    }
    is_named
}

/// The name becomes a part of the path that the metric is read at.
fn metric_name(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>) {
    let name = source.str_at(&["metric", "name"]);
    let metric = path.child("metric");
    let at = metric.child("name");
    if name.is_empty() {
        errors.required(&at, "must specify a metric name");
    } else {
        errors.all_invalid(&at, name, path_segment_problems(name, false));
    }
}

/// An absent target is one without members.
fn metric_target(errors: &mut Errors, path: &Path<'_>, target: Option<Ref<'_>>) {
    let kind = target.map_or("", |target| target.str("type"));
    if kind.is_empty() {
        errors.required(&path.child("type"), "must specify a metric target type");
    }
    if !TARGETS.contains(&kind) {
        let detail = "must be either Utilization, Value, or AverageValue";
        errors.invalid(&path.child("type"), kind, detail);
    }
    let Some(target) = target else { return };
    // The controller divides by it.
    for name in ["value", "averageValue"] {
        let amount = target.get(name).and_then(quantity);
        if let Some(amount) = amount.filter(|amount| *amount <= Quantity::default()) {
            errors.invalid(&path.child(name), amount.to_string(), "must be positive");
        }
    }
    let percent = target.get("averageUtilization").and_then(Ref::as_i64);
    if let Some(percent) = percent.filter(|percent| *percent < 1) {
        let at = path.child("averageUtilization");
        errors.invalid(&at, percent, "must be greater than 0");
    }
}

/// Validates that the target has the amount that such a metric is compared with.
fn amounts(errors: &mut Errors, path: &Path<'_>, member: &str, target: Option<Ref<'_>>) {
    let has = |name: &str| target.is_some_and(|target| present(target, name).is_some());
    let (value, average) = (has("value"), has("averageValue"));
    let missing = match member {
        "resource" | "containerResource" => {
            return utilization(errors, path, has("averageUtilization"), average);
        }
        "pods" if !average => "must specify a positive target averageValue",
        "object" if !value && !average => "must set either a target value or averageValue",
        "external" if !value && !average => "must set either a target value for metric or a per-pod target",
        "external" if value && average => {
            let detail = "may not set both a target value for metric and a per-pod target";
            return errors.forbidden(&path.child("value"), detail);
        }
        _ => return,
    };
    errors.required(&path.child("averageValue"), missing);
}

fn utilization(errors: &mut Errors, path: &Path<'_>, percent: bool, average: bool) {
    if !percent && !average {
        let detail = "must set either a target raw value or a target utilization";
        errors.required(&path.child("averageUtilization"), detail);
    }
    if percent && average {
        let detail = "may not set both a target raw value and a target utilization";
        errors.forbidden(&path.child("averageValue"), detail);
    }
}
