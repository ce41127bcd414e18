//! ServiceCIDR: a range that cluster IPs are taken from.

pub mod validation;

use crate::kind::Kind;
use crate::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("networking.k8s.io", "servicecidrs")
    .rules(ValidationRules::create(validation::validate).update(validation::validate_update));
