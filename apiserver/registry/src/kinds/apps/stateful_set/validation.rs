//! Validation of StatefulSets (upstream's `pkg/apis/apps/validation`).

use crate::kinds::apps::workload::{self, Named};
use crate::kinds::core::persistent_volume_claim::validation as claim;
use crate::shared::validation::{
    Errors, Path, dns_label, int_or_percent, is_zero_amount, non_negative, non_negative_int,
    not_over_100_percent, present,
};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_schema::{Ref, Tree, Value};
use std::collections::HashSet;

const NAMED: Named = Named {
    in_selector: "statefulset",
    in_template: "StatefulSet",
    unreadable: Some(""),
};
/// Immutable members of the spec: the identity of pods and claims depends on them.
const FIXED: [&str; 4] = [
    "selector",
    "volumeClaimTemplates",
    "serviceName",
    "podManagementPolicy",
];

/// Every problem of a StatefulSet.
pub fn validate(set: Ref<'_>) -> Vec<FieldError> {
    workload::validate(set, validate_spec)
}

/// Every problem of a change: those of the new one, and what pods and claims are known by stays.
pub fn validate_update(set: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = workload::validate(set, validate_rest);
    errors.extend(workload::fixed(set, old, &FIXED));
    errors
}

fn validate_spec(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    with_claims(errors, path, spec, true);
}

/// The spec without its templates of claims, which stay as they were stored.
fn validate_rest(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    with_claims(errors, path, spec, false);
}

fn with_claims(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, are_new: bool) {
    match spec.str("podManagementPolicy") {
        "" => errors.required(&path.child("podManagementPolicy"), ""),
        "OrderedReady" | "Parallel" => {}
        other => {
            let detail = "must be 'OrderedReady' or 'Parallel'";
            errors.invalid(&path.child("podManagementPolicy"), other, detail);
        }
    }
    update_strategy(errors, &path.child("updateStrategy"), spec);
    retention(errors, &path.child("persistentVolumeClaimRetentionPolicy"), spec);
    let claims = path.child("volumeClaimTemplates");
    let templates = spec.list("volumeClaimTemplates").enumerate();
    for (index, template) in templates.filter(|_| are_new) {
        if let Some(spec) = template.get("spec") {
            claim::validate_spec(errors, &claims.index(index).child("spec"), spec);
        }
    }
    non_negative(errors, path, spec, "replicas");
    non_negative(errors, path, spec, "minReadySeconds");
    if let Some(start) = spec.at(&["ordinals", "start"]).and_then(Ref::as_i64) {
        non_negative_int(errors, &path.child("ordinals.start"), start);
    }
    if !spec.str("serviceName").is_empty() {
        dns_label(errors, &path.child("serviceName"), spec.str("serviceName"));
    }
    workload::required_selector(errors, path, spec, NAMED);
    if let Some(template) = spec.get("template") {
        let made = as_the_controller_makes_it(spec, template);
        workload::template(errors, path, spec, made.root(), NAMED);
    }
}

fn update_strategy(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let strategy = spec.get("updateStrategy");
    let kind = strategy.map_or("", |strategy| strategy.str("type"));
    let rolling = strategy.and_then(|strategy| present(strategy, "rollingUpdate"));
    let at = path.child("rollingUpdate");
    match (kind, rolling) {
        ("", _) => errors.required(path, ""),
        ("OnDelete", Some(rolling)) => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            errors.invalid(&at, Shown(rolling.to_json()), detail);
        }
        ("RollingUpdate", Some(rolling)) => rolling_update(errors, &at, rolling),
        ("OnDelete" | "RollingUpdate", None) => {}
        _ => {
            let shown = strategy.map_or_else(|| "{}".into(), Ref::to_json);
            errors.invalid(path, Shown(shown), "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}

fn rolling_update(errors: &mut Errors, path: &Path<'_>, update: Ref<'_>) {
    non_negative(errors, path, update, "partition");
    let Some(unavailable) = present(update, "maxUnavailable") else {
        return;
    };
    let at = path.child("maxUnavailable");
    int_or_percent(errors, &at, unavailable);
    if is_zero_amount(Some(unavailable)) {
        errors.invalid(&at, Shown(unavailable.to_json()), "cannot be 0");
    }
    not_over_100_percent(errors, &at, unavailable);
}

fn retention(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let Some(policy) = present(spec, "persistentVolumeClaimRetentionPolicy") else {
        return;
    };
    for name in ["whenDeleted", "whenScaled"] {
        let value = policy.str(name);
        if !["Retain", "Delete"].contains(&value) {
            errors.not_supported(&path.child(name), value, &["Retain", "Delete"]);
        }
    }
}

/// Names are the controller's to give, and the claims' volumes are there when a pod is made.
fn as_the_controller_makes_it(spec: Ref<'_>, template: Ref<'_>) -> Tree {
    let mut made = template.to_tree();
    // Of two templates of one name there is one volume.
    let mut claimed = HashSet::new();
    let claims: Vec<&str> = spec
        .list("volumeClaimTemplates")
        .map(|claim| claim.str_at(&["metadata", "name"]))
        .filter(|claim| claimed.insert(*claim))
        .collect();
    made.with(&["spec"], |mut spec| {
        spec.remove("subdomain");
        spec.remove("hostname");
        let own: Vec<Tree> = spec
            .as_ref()
            .list("volumes")
            .filter(|volume| !claimed.contains(volume.str("name")))
            .map(Ref::to_tree)
            .collect();
        if claims.is_empty() {
            return;
        }
        spec.remove("volumes");
        let mut volumes = spec.entry("volumes");
        for claim in claims {
            let mut volume = volumes.push(Value::EmptyMap);
            volume.set("name", claim);
            volume.entry("persistentVolumeClaim").set("claimName", claim);
        }
        for volume in &own {
            volumes.push(volume.root());
        }
    });
    made
}
