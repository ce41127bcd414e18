//! ClusterRole: rights in all namespaces, and on what is in none.

use crate::kind::Kind;
use crate::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("rbac.authorization.k8s.io", "clusterroles")
    .traits(super::TRAITS)
    .rules(ValidationRules::create(super::validation::validate_cluster_role));
