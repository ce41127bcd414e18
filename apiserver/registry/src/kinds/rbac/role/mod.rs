//! Role: rights in a namespace.

use crate::engine::kind::Kind;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("rbac.authorization.k8s.io", "roles")
    .traits(super::TRAITS)
    .rules(ValidationRules::create(super::validation::validate_role));
