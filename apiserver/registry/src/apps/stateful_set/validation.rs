//! What makes a StatefulSet acceptable (upstream's `pkg/apis/apps/validation`).

use crate::core::claim::validation as claim;
use crate::core::pod::validation as pod;
use crate::validation::{
    Errors, Path, dns_label, immutable, int_or_percent, is_zero_amount, label_selector, non_negative,
    non_negative_int, not_over_100_percent, parse_label_selector, present, template_labels_match,
};
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, LabelSelector};
use machinery_schema::{Ref, Tree, Value};

/// Every problem of a StatefulSet.
pub fn validate(set: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if let Some(spec) = set.get("spec") {
        validate_spec(&mut errors, &Path::of("spec"), spec);
    }
    errors.into_list()
}

/// Every problem of a change: those of the new one, and what pods and claims are known by stays.
pub fn validate_update(set: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("spec");
    if let Some(spec) = set.get("spec") {
        validate_spec(&mut errors, &path, spec);
    }
    for name in [
        "selector",
        "volumeClaimTemplates",
        "serviceName",
        "podManagementPolicy",
    ] {
        let of = |object: Ref<'_>| object.at(&["spec", name]).map(Ref::to_tree);
        let (new, was) = (of(set), of(old));
        let root = |tree: &Option<Tree>| tree.as_ref().map(|tree| tree.root().to_json());
        if root(&new) != root(&was) {
            let (new, was) = (set.at(&["spec", name]), old.at(&["spec", name]));
            immutable(&mut errors, &path.child(name), new, was, "field is immutable");
        }
    }
    errors.into_list()
}

fn validate_spec(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
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
    for (index, template) in spec.list("volumeClaimTemplates").enumerate() {
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
    selector_and_template(errors, path, spec);
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

fn selector_and_template(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let selector = present(spec, "selector");
    let selector_path = path.child("selector");
    match selector {
        None => errors.required(&selector_path, ""),
        Some(selector) => {
            label_selector(errors, &selector_path, selector);
            if selector.is_empty() {
                let detail = "empty selector is invalid for statefulset";
                errors.invalid(&selector_path, Shown(selector.to_json()), detail);
            }
        }
    }
    let at = path.child("template");
    let Some(template) = spec.get("template") else {
        return;
    };
    let parsed = match selector {
        None => LabelSelector::parse("a,!a").ok(),
        Some(_) => parse_label_selector(selector).filter(|parsed| !parsed.is_everything()),
    };
    if let Some(parsed) = parsed {
        template_labels_match(errors, &at, &parsed, template);
    }
    let template = as_the_controller_makes_it(spec, template);
    pod::validate_template(errors, &at, template.root());
    pod::runs_for_ever(errors, &at, template.root(), "StatefulSet");
}

/// Names are the controller's to give, and the claims' volumes are there when a pod is made.
fn as_the_controller_makes_it(spec: Ref<'_>, template: Ref<'_>) -> Tree {
    let mut made = template.to_tree();
    let claims: Vec<&str> = spec
        .list("volumeClaimTemplates")
        .map(|claim| claim.str_at(&["metadata", "name"]))
        .collect();
    made.with(&["spec"], |mut spec| {
        spec.remove("subdomain");
        spec.remove("hostname");
        let own: Vec<Tree> = spec
            .as_ref()
            .list("volumes")
            .filter(|volume| !claims.contains(&volume.str("name")))
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
