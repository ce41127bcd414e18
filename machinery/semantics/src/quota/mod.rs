//! Quota: what an object uses of it, which quotas an object counts against, and whether a request fits them (apiserver's
//! `quota/v1` and the evaluators of `pkg/quota/v1`).
//!
//! An [`Evaluator`] knows one resource; it makes a [`Measured`] of an object, small enough to be kept for each object of a
//! cluster. Admission asks [`check_request`] whether a request fits the quotas of its namespace; the controller adds up what
//! the objects that match a quota use. Both ask here, so that they cannot disagree.

mod check;
mod evaluator;
mod measured;
mod pods;
mod resource_claims;
mod scopes;
mod services;
mod volume_claims;

pub use check::{Asked, LimitedResource, Refusal, check_request};
pub use evaluator::{Evaluator, count_name, counted_resource, is_ignored};
pub use measured::{Amounts, Measured};
pub use pods::{MissingResources, missing_resources, pod};
pub use resource_claims::{DeviceClasses, resource_claim};
pub use scopes::ScopeSelector;
pub use services::service;
pub use volume_claims::volume_claim;

use crate::ResourceList;
use k8s_openapi::api::core::v1::ResourceQuota;

/// Limits, scopes and usage of a ResourceQuota.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quota {
    pub name: String,
    pub resource_version: String,
    /// `spec.hard`.
    pub wanted: ResourceList,
    /// `spec.scopes` and `spec.scopeSelector`, of which each must match.
    pub scopes: Vec<ScopeSelector>,
    /// `status.hard`, absent until the controller has looked at the quota.
    pub hard: Option<ResourceList>,
    /// `status.used`.
    pub used: Option<ResourceList>,
}

impl Quota {
    pub fn of(quota: &ResourceQuota) -> Self {
        let (spec, status) = (quota.spec.as_ref(), quota.status.as_ref());
        let list = |list: Option<&_>| list.map(|list| ResourceList::from_api(Some(list)));
        Self {
            name: quota.metadata.name.clone().unwrap_or_default(),
            resource_version: quota.metadata.resource_version.clone().unwrap_or_default(),
            wanted: ResourceList::from_api(spec.and_then(|spec| spec.hard.as_ref())),
            scopes: spec.map(ScopeSelector::all).unwrap_or_default(),
            hard: list(status.and_then(|status| status.hard.as_ref())),
            used: list(status.and_then(|status| status.used.as_ref())),
        }
    }
}

/// The amounts of these resources alone.
pub(crate) fn mask<'n>(list: &ResourceList, names: impl Iterator<Item = &'n str>) -> ResourceList {
    let found = names.filter_map(|name| Some((name.to_owned(), *list.0.get(name)?)));
    ResourceList(found.collect())
}

#[cfg(test)]
mod tests;
