//! Validation of HorizontalPodAutoscalers, in either of their versions.

use super::conversion::stored_form;
use super::metric_sources;
use crate::engine::strategy::path_segment_problems;
use crate::shared::validation::{Errors, Path, present, quantity};
use machinery_meta::FieldError;
use machinery_schema::Ref;

const SELECT_POLICIES: [&str; 3] = ["Disabled", "Max", "Min"];
const SCALING_POLICIES: [&str; 2] = ["Percent", "Pods"];
const MAX_PERIOD_SECONDS: i64 = 1800;
const MAX_WINDOW_SECONDS: i64 = 3600;

/// Every problem of an autoscaler, new or changed; one of `v1` is looked at as it will be stored.
pub(crate) fn validate(autoscaler: Ref<'_>) -> Vec<FieldError> {
    match stored_form(autoscaler) {
        Some(stored) => validate_stored(stored.root()),
        None => validate_stored(autoscaler),
    }
}

fn validate_stored(autoscaler: Ref<'_>) -> Vec<FieldError> {
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
    let (target, target_path) = (present(spec, "scaleTargetRef"), path.child("scaleTargetRef"));
    reference(
        &mut errors,
        &target_path,
        target,
        MayBeCore::ReplicationController,
    );
    metric_sources::validate(&mut errors, &path.child("metrics"), spec, least);
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

/// Kinds of the core group that a reference may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MayBeCore {
    Yes,
    /// Nothing else of that group scales.
    ReplicationController,
}

/// Validates a reference; an absent one is one without members.
pub(super) fn reference(errors: &mut Errors, path: &Path<'_>, target: Option<Ref<'_>>, core: MayBeCore) {
    let text = |name: &str| target.map_or("", |target| target.str(name));
    for name in ["kind", "name"] {
        let value = text(name);
        if value.is_empty() {
            errors.required(&path.child(name), "");
        } else {
            errors.all_invalid(&path.child(name), value, path_segment_problems(value, false));
        }
    }
    let version = text("apiVersion");
    let detail = match version.split('/').collect::<Vec<_>>().as_slice() {
        [_] | ["", _] if core == MayBeCore::Yes => return,
        // A name without a slash is a version of the core group.
        ["v1"] if text("kind") == "ReplicationController" => return,
        [_] | ["", _] => "apiVersion must specify API group".to_owned(),
        [_, _] => return,
        _ => format!("unexpected GroupVersion string: {version}"),
    };
    errors.invalid(&path.child("apiVersion"), version, detail);
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
    let select = rules.get("selectPolicy").and_then(Ref::as_str);
    if let Some(select) = select.filter(|select| !SELECT_POLICIES.contains(select)) {
        errors.not_supported(&path.child("selectPolicy"), select, &SELECT_POLICIES);
    }
    let policies = path.child("policies");
    if rules.list("policies").len() == 0 {
        errors.required(&policies, "must specify at least one Policy");
    }
    for (index, policy) in rules.list("policies").enumerate() {
        scaling_policy(errors, &policies.index(index), policy);
    }
    let tolerance = rules.get("tolerance").and_then(quantity);
    if let Some(tolerance) = tolerance.filter(|tolerance| tolerance.is_negative()) {
        let detail = "must be greater than or equal to 0";
        errors.invalid(&path.child("tolerance"), tolerance.to_string(), detail);
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
