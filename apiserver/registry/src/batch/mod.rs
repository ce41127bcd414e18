//! The kinds of the batch group that have rules of their own.

pub mod cron_job;
pub mod job;

use crate::table_strategy::{Kind, Traits};
use crate::validation_rules::ValidationRules;

/// The kinds of this group that the table serves.
pub(crate) const KINDS: &[Kind] = &[
    Kind::of(
        "cronjobs",
        Traits::COUNTED,
        ValidationRules::create(cron_job::validation::validate).update(cron_job::validation::validate_update),
    ),
    Kind::of(
        "jobs",
        Traits::COUNTED.orphaning(),
        ValidationRules::create(job::validation::validate)
            .update(job::update::validate)
            .status(job::status::validate),
    ),
];
