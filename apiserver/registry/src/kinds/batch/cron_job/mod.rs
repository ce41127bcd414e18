//! CronJob: jobs at times of a schedule.

mod columns;
mod defaults;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("batch", "cronjobs")
    .traits(Traits::COUNTED)
    .rules(ValidationRules::create(validation::validate).update(validation::validate_update))
    .warnings(|object, old| {
        crate::kinds::core::pod::workload_warnings::of_named_at(
            &["spec", "jobTemplate", "spec", "template"],
            object,
            old,
        )
    })
    .default_lines(&[defaults::LINES])
    .pod_template(crate::kinds::core::pod::template::at(&[
        "spec",
        "jobTemplate",
        "spec",
        "template",
        "spec",
    ]))
    .columns(columns::cells);
