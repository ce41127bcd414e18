//! LimitRange: bounds and defaults for what pods of a namespace request.

pub mod validation;

use crate::kind::{Kind, Traits};
use crate::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("", "limitranges")
    .traits(Traits::PLAIN.put_creates())
    .rules(ValidationRules::create(validation::validate));
