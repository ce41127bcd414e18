//! Role: rights in a namespace.

use crate::kind::Kind;
use crate::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("rbac.authorization.k8s.io", "roles")
    .traits(super::TRAITS)
    .rules(ValidationRules::create(super::validation::validate_role));
