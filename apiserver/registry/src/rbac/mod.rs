//! The kinds of the RBAC group: names are any path segment, and a PUT creates.

pub mod validation;

use crate::table_strategy::{Kind, NameRule, Traits};
use crate::validation_rules::ValidationRules;

const RBAC: Traits = Traits::PLAIN.named(NameRule::PathSegment).put_creates();

/// The kinds of this group that the table serves.
pub(crate) const KINDS: &[Kind] = &[
    Kind::of("roles", RBAC, ValidationRules::create(validation::validate_role)),
    Kind::of(
        "clusterroles",
        RBAC,
        ValidationRules::create(validation::validate_cluster_role),
    ),
    Kind::of(
        "rolebindings",
        RBAC,
        ValidationRules::create(|new| validation::validate_binding(new, true))
            .update(|new, old| validation::validate_binding_update(new, old, true)),
    ),
    Kind::of(
        "clusterrolebindings",
        RBAC,
        ValidationRules::create(|new| validation::validate_binding(new, false))
            .update(|new, old| validation::validate_binding_update(new, old, false)),
    ),
];
