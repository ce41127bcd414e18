//! The kinds of the batch group that have rules of their own.

pub mod cron_job;
pub mod job;

use crate::rules::Rules;
use crate::table_strategy::{Kind, Traits};

/// The kinds of this group that the table serves.
pub(crate) const KINDS: &[Kind] = &[
    Kind::of(
        "cronjobs",
        Traits::COUNTED,
        Rules::on(cron_job::validation::validate).changed(cron_job::validation::validate_update),
    ),
    Kind::of(
        "jobs",
        Traits::COUNTED.orphaning(),
        Rules::on(job::validation::validate)
            .changed(job::update::validate)
            .status(job::status::validate),
    ),
];
