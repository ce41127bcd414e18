//! What makes a Node acceptable (upstream's `ValidateNode`).

use crate::core::pod::validation::resources::amount_of;
use crate::core::pod::validation::scheduling::taints;
use crate::validation::{Errors, Path, is_pair, legacy_cidr};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_schema::Ref;

/// Every problem of a Node.
pub fn validate(node: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    own_taints(&mut errors, node);
    resources(&mut errors, node);
    declared_features(&mut errors, node);
    if let Some(spec) = node.get("spec") {
        pod_cidrs(&mut errors, &Path::of("spec").child("podCIDRs"), spec);
    }
    errors.into_list()
}

/// Every problem of a change of the node or its status: a pod range and a provider once given stay.
pub fn validate_update(node: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    resources(&mut errors, node);
    declared_features(&mut errors, node);
    addresses(&mut errors, node);
    ranges_stay(&mut errors, node, old);
    provider_stays(&mut errors, node, old);
    own_taints(&mut errors, node);
    let text = |object: Ref<'_>, name| object.at(&["spec", name]).map(Ref::to_json);
    if text(node, "externalID") != text(old, "externalID") {
        errors.forbidden(&Path::of("spec").child("externalID"), "may not be updated");
    }
    errors.into_list()
}

/// Upstream looks for them in the metadata.
fn own_taints(errors: &mut Errors, node: Ref<'_>) {
    if let Some(spec) = node.get("spec") {
        taints(errors, &Path::of("metadata").child("taints"), spec);
    }
}

fn resources(errors: &mut Errors, node: Ref<'_>) {
    let path = Path::of("status");
    for list in ["capacity", "allocatable"] {
        let at = path.child(list);
        let amounts = node.at(&["status", list]).into_iter().flat_map(Ref::entries);
        for (name, value) in amounts {
            amount_of(errors, &at.exactly(name), name, value);
        }
    }
}

fn declared_features(errors: &mut Errors, node: Ref<'_>) {
    let path = Path::of("status");
    let path = path.child("declaredFeatures");
    let features: Vec<&str> = node
        .get("status")
        .into_iter()
        .flat_map(|status| status.list("declaredFeatures"))
        .filter_map(Ref::as_str)
        .collect();
    for (index, pair) in features.windows(2).enumerate() {
        let at = path.index(index + 1);
        if pair[0] == pair[1] {
            errors.duplicate(&at, pair[1]);
        } else if pair[0] > pair[1] {
            errors.invalid(&at, pair[1], "list must be sorted alphabetically");
        }
    }
}

fn addresses(errors: &mut Errors, node: Ref<'_>) {
    let path = Path::of("status");
    let path = path.child("addresses");
    let all: Vec<Ref<'_>> = node
        .get("status")
        .into_iter()
        .flat_map(|status| status.list("addresses"))
        .collect();
    for (index, address) in all.iter().enumerate() {
        if all[..index].contains(address) {
            let (kind, value) = (address.str("type"), address.str("address"));
            let shown = format!(r#"{{"Type":{kind:?},"Address":{value:?}}}"#);
            errors.duplicate(&path.index(index), Shown(shown));
        }
    }
}

fn ranges_stay(errors: &mut Errors, node: Ref<'_>, old: Ref<'_>) {
    let ranges = |object: Ref<'_>| {
        object
            .at(&["spec", "podCIDRs"])
            .filter(|own| !own.is_empty())
            .map(Ref::to_json)
    };
    let before = ranges(old);
    if before.is_some() && ranges(node) != before {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        errors.forbidden(&Path::of("spec").child("podCIDRs"), detail);
    }
}

fn provider_stays(errors: &mut Errors, node: Ref<'_>, old: Ref<'_>) {
    let (new, before) = (
        node.str_at(&["spec", "providerID"]),
        old.str_at(&["spec", "providerID"]),
    );
    if before.is_empty() || new == before {
        return;
    }
    let detail = if new.is_empty() {
        "field cannot be cleared once set"
    } else {
        "field cannot be modified once set"
    };
    let shown = Shown("null".into());
    errors.invalid(&Path::of("spec").child("providerID"), shown, detail);
}

fn pod_cidrs(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let ranges: Vec<&str> = spec.list("podCIDRs").filter_map(Ref::as_str).collect();
    for (index, range) in ranges.iter().enumerate() {
        legacy_cidr(errors, &path.index(index), range);
    }
    if ranges.len() > 1 && !is_pair(&ranges) {
        let shown = spec.get("podCIDRs").map(Ref::to_json).unwrap_or_default();
        let detail = "may specify no more than one CIDR for each IP family";
        errors.invalid(path, Shown(shown), detail);
    }
}
