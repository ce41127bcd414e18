//! Validation of Nodes (upstream's `ValidateNode`) and of their status (`ValidateNodeUpdate`).

use crate::kinds::core::pod::validation::scheduling::taints;
use crate::shared::validation::{Errors, Path, each_once, is_pair, legacy_cidr, present, resource_amount};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_schema::Ref;
use std::collections::BTreeSet;

const MAX_FEATURE_BYTES: usize = 253;

/// Every problem of a Node.
pub fn validate(node: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    own_taints(&mut errors, node);
    amounts(&mut errors, node);
    let swap = node
        .at(&["status", "nodeInfo", "swap", "capacity"])
        .and_then(Ref::as_i64);
    if let Some(swap) = swap.filter(|swap| *swap <= 0) {
        let path = Path::of("metadata.nodeSwapStatus.capacity");
        errors.invalid(&path, swap, "must be greater than zero");
    }
    features(&mut errors, node);
    if let Some(spec) = node.get("spec") {
        pod_cidrs(&mut errors, &Path::of("spec.podCIDRs"), spec);
    }
    errors.into_list()
}

/// Every problem of a changed Node: a pod range and a provider once given stay.
pub fn validate_update(node: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    each_once(validate(node), validate_status(node, old))
}

/// Every problem of a changed status, and of what stays in any change.
pub(crate) fn validate_status(node: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    amounts(&mut errors, node);
    features(&mut errors, node);
    addresses(&mut errors, node);
    let path = Path::of("spec");
    let list = |object: Ref<'_>| {
        object
            .at(&["spec", "podCIDRs"])
            .filter(|own| !own.is_empty())
            .map(Ref::to_json)
    };
    if list(old).is_some() && list(node) != list(old) {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        errors.forbidden(&path.child("podCIDRs"), detail);
    }
    provider(&mut errors, &path.child("providerID"), node, old);
    own_taints(&mut errors, node);
    let external = |object: Ref<'_>| object.str_at(&["spec", "externalID"]).to_owned();
    if external(node) != external(old) {
        errors.forbidden(&path.child("externalID"), "may not be updated");
    }
    errors.into_list()
}

/// Refuses a change of `providerID` once it is set.
fn provider(errors: &mut Errors, path: &Path<'_>, node: Ref<'_>, old: Ref<'_>) {
    let of = |object: Ref<'_>| object.str_at(&["spec", "providerID"]).to_owned();
    if !of(old).is_empty() && of(node) != of(old) {
        let what = if of(node).is_empty() {
            "cleared"
        } else {
            "modified"
        };
        let detail = format!("field cannot be {what} once set");
        errors.invalid(path, Shown("null".into()), detail);
    }
}

/// Upstream says of taints that they are metadata.
fn own_taints(errors: &mut Errors, node: Ref<'_>) {
    if let Some(spec) = node.get("spec") {
        taints(errors, &Path::of("metadata.taints"), spec);
    }
}

/// Validates the amounts of capacity and allocatable.
fn amounts(errors: &mut Errors, node: Ref<'_>) {
    let path = Path::of("status");
    for name in ["capacity", "allocatable"] {
        let at = path.child(name);
        for (resource, value) in node.at(&["status", name]).into_iter().flat_map(Ref::entries) {
            resource_amount(errors, &at.child(resource), resource, value);
        }
    }
}

/// Features that the agent declares, in the order of their names.
fn features(errors: &mut Errors, node: Ref<'_>) {
    let path = Path::of("status.declaredFeatures");
    let status = node.get("status").into_iter();
    let names: Vec<&str> = status
        .flat_map(|status| status.list("declaredFeatures"))
        .filter_map(Ref::as_str)
        .collect();
    for (index, name) in names.iter().enumerate() {
        let why = feature_problem(name);
        if let Some(why) = why {
            errors.invalid(
                &path.index(index),
                *name,
                format!("invalid feature name {name:?}: {why}"),
            );
        }
        match names.get(index + 1) {
            Some(next) if next == name => errors.duplicate(&path.index(index + 1), *next),
            Some(next) if next < name => {
                errors.invalid(
                    &path.index(index + 1),
                    *next,
                    "list must be sorted alphabetically",
                );
            }
            _ => {}
        }
    }
}

fn feature_problem(name: &str) -> Option<String> {
    if name.len() > MAX_FEATURE_BYTES {
        return Some(format!("must be no more than {MAX_FEATURE_BYTES} characters"));
    }
    let rule = "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes";
    (!is_feature(name)).then(|| rule.to_owned())
}

fn is_feature(name: &str) -> bool {
    let segment = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(|c| c.is_ascii_alphanumeric())
    };
    name.starts_with(|c: char| c.is_ascii_uppercase()) && name.split('/').all(segment)
}

fn addresses(errors: &mut Errors, node: Ref<'_>) {
    let path = Path::of("status.addresses");
    let mut seen = BTreeSet::new();
    let all = node
        .get("status")
        .into_iter()
        .flat_map(|status| status.list("addresses"));
    for (index, address) in all.enumerate() {
        let key = (address.str("type"), address.str("address"));
        if seen.contains(&key) {
            let shown = format!(r#"{{"Type":{:?},"Address":{:?}}}"#, key.0, key.1);
            errors.duplicate(&path.index(index), Shown(shown));
        }
        seen.insert(key);
    }
}

fn pod_cidrs(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let list: Vec<&str> = spec.list("podCIDRs").filter_map(Ref::as_str).collect();
    for (index, range) in list.iter().enumerate() {
        legacy_cidr(errors, &path.index(index), range);
    }
    if list.len() > 1 && !is_pair(&list) {
        let shown = present(spec, "podCIDRs").map(Ref::to_json).unwrap_or_default();
        let detail = "may specify no more than one CIDR for each IP family";
        errors.invalid(path, Shown(shown), detail);
    }
}
