//! PriorityClass: a name for a priority.

mod columns;
mod defaults;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("scheduling.k8s.io", "priorityclasses")
    .traits(Traits::COUNTED)
    .rules(ValidationRules::create(validation::validate).update(validation::validate_update))
    // It has a generation, and nothing that would count.
    .spec_changed(|_, _| false)
    .default_lines(&[defaults::LINES])
    .columns(columns::cells);
