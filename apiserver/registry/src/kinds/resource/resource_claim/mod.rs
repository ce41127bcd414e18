//! ResourceClaim: devices that are requested, and those that were allocated.

pub mod allocation;
pub mod validation;

use crate::kind::{Kind, Traits};
use crate::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("resource.k8s.io", "resourceclaims")
    .traits(Traits::PLAIN.returned())
    .rules(
        ValidationRules::create(validation::validate)
            .update(validation::validate_update)
            .status(allocation::validate_status),
    )
    .not_enforced("devices are not allocated");
