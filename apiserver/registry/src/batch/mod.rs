//! The kinds of the batch group that have rules of their own.

pub mod cron_job;
pub mod job;

use crate::strategy::Strategy;
use std::sync::Arc;

/// The strategy of a kind of this group.
pub(crate) fn strategy(_group: &str, _plural: &str) -> Option<Arc<dyn Strategy>> {
    None
}
