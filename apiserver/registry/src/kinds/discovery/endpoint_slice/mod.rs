//! EndpointSlice: some of the addresses behind a service.

pub mod validation;

use crate::kind::{Kind, Traits};
use crate::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("discovery.k8s.io", "endpointslices")
    .traits(Traits::COUNTED)
    .rules(ValidationRules::create(validation::validate).update(validation::validate_update));
