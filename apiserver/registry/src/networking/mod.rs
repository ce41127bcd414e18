//! The kinds of the networking and discovery groups that have rules of their own.

pub mod ingress;
pub mod ip_address;
pub mod service_cidr;

use crate::strategy::Strategy;
use std::sync::Arc;

/// The strategy of a kind of this group.
pub(crate) fn strategy(_group: &str, _plural: &str) -> Option<Arc<dyn Strategy>> {
    None
}
