//! RoleBinding: a role in a namespace, and its subjects.

use crate::engine::kind::Kind;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("rbac.authorization.k8s.io", "rolebindings")
    .traits(super::TRAITS)
    .rules(
        ValidationRules::create(|new| super::validation::validate_binding(new, true))
            .update(|new, old| super::validation::validate_binding_update(new, old, true)),
    )
    .default_lines(&[super::defaults::LINES])
    .defaults(super::defaults::subjects)
    .columns(super::columns::binding);
