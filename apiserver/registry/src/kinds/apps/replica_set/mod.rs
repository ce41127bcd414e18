//! ReplicaSet: a number of pods of one template.

mod columns;
mod defaults;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::selectable::Selectable;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("apps", "replicasets")
    .traits(Traits::COUNTED)
    .rules(
        ValidationRules::create(validation::validate)
            .update(validation::validate_update)
            .status(crate::kinds::apps::status::validate_replica_set),
    )
    .warnings(crate::kinds::core::pod::workload_warnings::of_named)
    .default_lines(&[defaults::LINES])
    .pod_template(crate::kinds::core::pod::template::at(&[
        "spec", "template", "spec",
    ]))
    .columns(columns::cells)
    .selectable(|| vec![Selectable::with_absent("status.replicas", "0")]);
