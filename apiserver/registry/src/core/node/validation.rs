//! What makes a Node acceptable (upstream's `ValidateNode`).

use crate::core::pod::validation::scheduling::taints;
use crate::validation::{Errors, Path};
use machinery_meta::FieldError;
use machinery_schema::Ref;
use std::net::IpAddr;

/// Every problem of a Node.
pub fn validate(node: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if let Some(spec) = node.get("spec") {
        let path = Path::of("spec");
        taints(&mut errors, &path.child("taints"), spec);
        pod_cidrs(&mut errors, &path.child("podCIDRs"), spec);
    }
    errors.into_list()
}

/// Every problem of a changed Node: a pod range and a provider once given stay.
pub fn validate_update(node: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("spec");
    let text = |object: Ref<'_>, name| object.at(&["spec", name]).map(Ref::to_json);
    if text(old, "podCIDRs").is_some() && text(node, "podCIDRs") != text(old, "podCIDRs") {
        errors.forbidden(
            &path.child("podCIDRs"),
            "node updates may not change podCIDR except from \"\" to valid",
        );
    }
    let provider = |object: Ref<'_>| object.str_at(&["spec", "providerID"]).to_owned();
    if !provider(old).is_empty() && provider(node) != provider(old) {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.forbidden(&path.child("providerID"), detail);
    }
    let mut all = validate(node);
    all.extend(errors.into_list());
    all
}

fn pod_cidrs(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let list = spec.list("podCIDRs");
    for (index, range) in list.enumerate() {
        let text = range.as_str().unwrap_or_default();
        if !is_cidr(text) {
            let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            errors.invalid(&path.index(index), text, detail);
        }
    }
    if spec.list("podCIDRs").len() > 2 {
        let shown = spec.get("podCIDRs").map(Ref::to_json).unwrap_or_default();
        errors.invalid(
            path,
            machinery_meta::field::Shown(shown),
            "may specify no more than one CIDR for each IP family",
        );
    }
}

/// An address and a prefix length that fits its family.
pub fn is_cidr(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, bits)| {
        let max = match address.parse::<IpAddr>() {
            Ok(IpAddr::V4(_)) => 32,
            Ok(IpAddr::V6(_)) => 128,
            Err(_) => return false,
        };
        bits.parse::<u8>().is_ok_and(|bits| bits <= max)
    })
}
