//! Kinds of the smaller groups that have rules of their own.

pub(crate) mod autoscaling;

use crate::strategy::Strategy;
use std::sync::Arc;

/// The strategy of a kind of these groups.
pub(crate) fn strategy(_group: &str, _plural: &str) -> Option<Arc<dyn Strategy>> {
    None
}
