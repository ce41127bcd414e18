//! The kinds of the RBAC group: names are any path segment, and a PUT creates.

pub mod validation;

use crate::rules::Rules;
use crate::table_strategy::{Kind, NameRule, Traits};

const RBAC: Traits = Traits::PLAIN.named(NameRule::PathSegment).put_creates();

/// The kinds of this group that the table serves.
pub(crate) const KINDS: &[Kind] = &[
    Kind::of("roles", RBAC, Rules::on(validation::validate_role)),
    Kind::of("clusterroles", RBAC, Rules::on(validation::validate_cluster_role)),
    Kind::of(
        "rolebindings",
        RBAC,
        Rules::on(|new| validation::validate_binding(new, true))
            .changed(|new, old| validation::validate_binding_update(new, old, true)),
    ),
    Kind::of(
        "clusterrolebindings",
        RBAC,
        Rules::on(|new| validation::validate_binding(new, false))
            .changed(|new, old| validation::validate_binding_update(new, old, false)),
    ),
];
