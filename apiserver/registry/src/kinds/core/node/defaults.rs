//! Defaults of Nodes.

use machinery_schema::{Ref, Step, Tree};

/// Members that follow from others.
pub(super) fn set(object: &mut Tree) {
    allocatable(object);
    same_ranges(object);
}

/// All that a node has, unless it says less.
fn allocatable(object: &mut Tree) {
    let unset = object.at(&["status", "allocatable"]).is_none_or(Ref::is_empty);
    let capacity = object
        .at(&["status", "capacity"])
        .filter(|c| !c.is_empty())
        .map(Ref::to_tree);
    if let Some(capacity) = capacity.filter(|_| unset) {
        object.set(
            &[Step::Name("status"), Step::Name("allocatable")],
            capacity.root(),
        );
    }
}

/// The one range of old clients is the first of the list.
fn same_ranges(object: &mut Tree) {
    let listed = object.get("spec").and_then(|spec| spec.list("podCIDRs").next());
    let first = listed.and_then(Ref::as_str).unwrap_or_default().to_owned();
    let one = object.str_at(&["spec", "podCIDR"]).to_owned();
    if one.is_empty() && !first.is_empty() {
        object.set_str(&["spec", "podCIDR"], &first);
    } else if one != first {
        object.remove(&["spec", "podCIDRs"]);
        object.push(&["spec", "podCIDRs"], one.as_str());
    }
}
