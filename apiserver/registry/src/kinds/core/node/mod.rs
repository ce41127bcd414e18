//! Node: registers with its status; afterwards the status is its agent's.

mod columns;
mod defaults;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::selectable::Selectable;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("", "nodes")
    .traits(Traits::PLAIN.status_kept())
    .rules(
        ValidationRules::create(validation::validate)
            .update(validation::validate_update)
            .status(validation::validate_status),
    )
    .defaults(defaults::set)
    .columns(columns::cells)
    .selectable(|| vec![Selectable::with_absent("spec.unschedulable", "false")]);
