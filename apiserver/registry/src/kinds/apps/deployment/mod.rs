//! Deployment: pods that are replaced by and by when their template changes.

pub mod validation;

use crate::kind::{Kind, Traits};
use crate::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("apps", "deployments").traits(Traits::COUNTED).rules(
    ValidationRules::create(validation::validate)
        .update(validation::validate_update)
        .status(crate::kinds::apps::status::validate_deployment),
);
