//! PriorityLevelConfiguration: seats for the requests of a priority level, and queues.

mod columns;
mod defaults;
mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations")
    .traits(Traits::COUNTED)
    .rules(ValidationRules::create(validation::validate).status(super::status::validate_status))
    .prepare_for_update(super::status::keep)
    .default_lines(&[defaults::LINES])
    .defaults(defaults::set)
    .columns(columns::cells);
