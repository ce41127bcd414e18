//! Kinds of the smaller groups that have rules of their own.

pub(crate) mod api_service;
pub(crate) mod autoscaling;
pub(crate) mod crd;
pub(crate) mod plain;
pub(crate) mod signing_decision;
pub(crate) mod signing_request;

use crate::strategy::Strategy;
use std::sync::Arc;

/// The strategy of a kind of these groups.
pub(crate) fn strategy(group: &str, plural: &str) -> Option<Arc<dyn Strategy>> {
    match (group, plural) {
        ("apiextensions.k8s.io", "customresourcedefinitions") => Some(Arc::new(crd::CrdStrategy)),
        _ => None,
    }
}
