//! Defaults of LimitRanges.

use machinery_schema::{Ref, Tree};

/// Sets defaults for containers: the limit is the maximum, the request the limit or the minimum, unless they are set.
pub(super) fn set(object: &mut Tree) {
    object.with(&["spec"], |mut spec| {
        spec.each("limits", |mut limit| {
            if limit.as_ref().str("type") != "Container" {
                return;
            }
            for (from, to) in [
                ("max", "default"),
                ("default", "defaultRequest"),
                ("min", "defaultRequest"),
            ] {
                let amounts = limit.as_ref().get(from).map(Ref::to_tree);
                for (resource, amount) in amounts.iter().flat_map(|tree| tree.root().entries()) {
                    limit.entry(to).default(resource, amount);
                }
            }
        });
    });
}
