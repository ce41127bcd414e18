//! Node: registers with its status; afterwards the status is its agent's.

pub mod validation;

use crate::kind::Kind;
use crate::strategy::Strategy;
use crate::validation_rules::ValidationRules;
use machinery_schema::{Ref, Tree};

pub(crate) static KIND: Kind = Kind::of("", "nodes");

/// See the module's comment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeStrategy;

impl Strategy for NodeStrategy {
    fn defaults(&self, object: &mut Tree) {
        crate::defaults::apply("", "nodes", object);
        same_ranges(object);
    }

    fn counts_generation(&self) -> bool {
        false
    }

    fn keeps_status_on_create(&self) -> bool {
        true
    }

    fn rules(&self) -> ValidationRules {
        ValidationRules::create(validation::validate)
            .update(validation::validate_update)
            .status(validation::validate_status)
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
