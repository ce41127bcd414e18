//! The kinds of the apps group that have rules of their own.

pub mod daemon_set;
pub mod deployment;
pub mod replica_set;
pub mod stateful_set;
pub(crate) mod status;
mod workload;

use crate::strategy::Strategy;
use std::sync::Arc;

/// The strategy of a kind of this group.
pub(crate) fn strategy(_group: &str, _plural: &str) -> Option<Arc<dyn Strategy>> {
    None
}
