//! PersistentVolume: storage that a claim may be bound to.

pub mod validation;

use crate::kind::{Kind, Traits};
use crate::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("", "persistentvolumes")
    .traits(Traits::PLAIN.returned())
    .rules(ValidationRules::create(validation::validate).update(validation::validate_update));
