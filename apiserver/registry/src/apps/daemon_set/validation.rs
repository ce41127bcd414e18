//! What makes a DaemonSet acceptable (upstream's `pkg/apis/apps/validation`).

use crate::core::pod::validation as pod;
use crate::validation::{
    Errors, Path, immutable, int_or_percent, is_zero_amount, label_selector, non_negative,
    not_over_100_percent, parse_label_selector, present, template_labels_match,
};
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, LabelSelector};
use machinery_schema::Ref;

/// Every problem of a DaemonSet.
pub fn validate(set: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if let Some(spec) = set.get("spec") {
        validate_spec(&mut errors, &Path::of("spec"), spec);
    }
    errors.into_list()
}

/// Every problem of a change: the selector stays, and those of the new one.
pub fn validate_update(set: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("spec");
    let (new_selector, old_selector) = (set.at(&["spec", "selector"]), old.at(&["spec", "selector"]));
    let at = path.child("selector");
    immutable(&mut errors, &at, new_selector, old_selector, "field is immutable");
    if let Some(spec) = set.get("spec") {
        validate_spec(&mut errors, &path, spec);
    }
    errors.into_list()
}

fn validate_spec(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let selector = present(spec, "selector");
    let selector_path = path.child("selector");
    if let Some(selector) = selector {
        label_selector(errors, &selector_path, selector);
    }
    template(errors, path, spec, selector);
    non_negative(errors, path, spec, "minReadySeconds");
    update_strategy(errors, &path.child("updateStrategy"), spec);
    non_negative(errors, path, spec, "revisionHistoryLimit");
}

fn template(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, selector: Option<Ref<'_>>) {
    let at = path.child("template");
    let Some(template) = spec.get("template") else {
        return;
    };
    let parsed = match selector {
        // Nothing is matched without a selector.
        None => LabelSelector::parse("a,!a").ok(),
        Some(_) => parse_label_selector(selector),
    };
    if let Some(parsed) = parsed {
        template_labels_match(errors, &at, &parsed, template);
    }
    if let Some(empty) = selector.filter(|selector| selector.is_empty()) {
        let detail = "empty selector is invalid for daemonset";
        errors.invalid(&path.child("selector"), Shown(empty.to_json()), detail);
    }
    pod::validate_template(errors, &at, template);
    pod::runs_for_ever(errors, &at, template, "DaemonSet");
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
