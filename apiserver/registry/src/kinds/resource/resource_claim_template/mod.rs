//! ResourceClaimTemplate: the claim that each pod gets for itself.

use crate::kind::{Kind, Traits};
use crate::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("resource.k8s.io", "resourceclaimtemplates")
    .traits(Traits::PLAIN.returned())
    .rules(
        ValidationRules::create(super::resource_claim::validation::validate_template)
            .update(super::resource_claim::validation::validate_template_update),
    )
    .not_enforced("devices are not allocated");
