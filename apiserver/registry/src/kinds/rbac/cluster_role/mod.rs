//! ClusterRole: rights in all namespaces, and on what is in none.

use crate::engine::kind::Kind;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("rbac.authorization.k8s.io", "clusterroles")
    .traits(super::TRAITS)
    .rules(ValidationRules::create(super::validation::validate_cluster_role));
