//! ReplicaSet: a number of pods of one template.

pub mod validation;

use crate::kind::{Kind, Traits};
use crate::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("apps", "replicasets").traits(Traits::COUNTED).rules(
    ValidationRules::create(validation::validate)
        .update(validation::validate_update)
        .status(crate::kinds::apps::status::validate_replica_set),
);
