//! Endpoints: the addresses behind a service, in the form before EndpointSlices.

pub mod validation;

use crate::kind::{Kind, Traits};
use crate::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("", "endpoints")
    .traits(Traits::PLAIN.put_creates())
    .rules(ValidationRules::create(validation::validate));
