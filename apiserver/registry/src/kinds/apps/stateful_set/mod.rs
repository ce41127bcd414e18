//! StatefulSet: numbered pods with claims of their own.

pub mod validation;

use crate::kind::{Kind, NameRule, Traits};
use crate::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("apps", "statefulsets")
    .traits(Traits::COUNTED.named(NameRule::Label))
    .rules(
        ValidationRules::create(validation::validate)
            .update(validation::validate_update)
            .status(crate::kinds::apps::status::validate_stateful_set),
    );
