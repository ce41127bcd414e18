//! Node: registers with its status; afterwards the status is its agent's.

mod columns;
mod config_source;
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
    .prepare_for_create(|_, node| config_source::drop(node))
    .prepare_for_update(|_, _, node, old| config_source::drop_new(node, old))
    .columns(columns::cells)
    .selectable(|| vec![Selectable::with_absent("spec.unschedulable", "false")]);
