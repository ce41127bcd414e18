//! ReplicationController: a number of pods, before there were ReplicaSets.

pub mod validation;

use crate::kind::{Kind, Traits};
use crate::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("", "replicationcontrollers")
    .traits(Traits::COUNTED.orphaning())
    .rules(
        ValidationRules::create(validation::validate).status(crate::kinds::apps::status::validate_controller),
    );
