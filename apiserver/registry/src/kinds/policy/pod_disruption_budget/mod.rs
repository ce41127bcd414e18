//! PodDisruptionBudget: how many pods may be evicted at a time.

mod columns;
mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::{NameRule, Traits};
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("policy", "poddisruptionbudgets")
    .traits(
        Traits::COUNTED
            .named(NameRule::PathSegment)
            .any_finalizers()
            .revision_wanted(),
    )
    .rules(
        ValidationRules::create(validation::validate)
            .update(validation::validate_update)
            .status(validation::validate_status),
    )
    .columns(columns::cells);
