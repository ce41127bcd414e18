//! ReplicationController: a number of pods, before there were ReplicaSets.

mod columns;
mod defaults;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::selectable::Selectable;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("", "replicationcontrollers")
    .traits(Traits::COUNTED.orphaning())
    .rules(
        ValidationRules::create(validation::validate).status(crate::kinds::apps::status::validate_controller),
    )
    .warnings(crate::kinds::core::pod::workload_warnings::of_named)
    .default_lines(&[defaults::LINES])
    .defaults(defaults::set)
    .pod_template(crate::kinds::core::pod::template::at(&[
        "spec", "template", "spec",
    ]))
    .columns(columns::cells)
    .selectable(|| vec![Selectable::with_absent("status.replicas", "0")]);
