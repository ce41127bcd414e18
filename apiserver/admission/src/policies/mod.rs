//! ValidatingAdmissionPolicies and MutatingAdmissionPolicies, as plugins of the chain.
//!
//! [`Policies`] holds the policies that a binding names, compiled once for each generation; the server replaces them as objects change, so
//! that a request reads none, and one without policies costs a look at an empty list. A request goes through
//! [`matching`](crate::matching) by a policy's constraints, then by those of each of its bindings; [`params`] finds the parameters that a
//! binding names, and for each of them the policy's expressions are evaluated . [`validating`] makes decisions of their
//! values ([`decision`]), [`mutating`] changes of the object ([`patch`]).
//!
//! Policies and their bindings are no matter of policies, so that a wrong one can be removed.

mod annotations;
mod decision;
mod definition;
mod denial;
mod invocation;
mod mutating;
mod observer;
mod params;
mod patch;
mod validating;

#[cfg(test)]
pub(crate) mod tests;

pub use definition::{Binding, MutatingPolicy, PolicyProblem, ValidatingPolicy};
pub use denial::Denial;
pub use mutating::MutatingPolicies;
pub use observer::{ErrorType, PolicyObserver, PolicyRun};
pub use params::ParamSource;
pub use validating::ValidatingPolicies;

use crate::Request;
use arc_swap::ArcSwap;
use machinery_meta::reader::ObjectReader;
use machinery_runtime::Runtime;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A policy with its bindings.
#[derive(Debug, Clone)]
pub struct Hook<P> {
    pub(crate) policy: Arc<P>,
    pub(crate) bindings: Vec<Arc<Binding>>,
}

/// Joins policies to the bindings that name them, both in the order of their names; policies without a binding do nothing.
pub fn hooks<P>(
    policies: &BTreeMap<String, Arc<P>>,
    bindings: &BTreeMap<String, Arc<Binding>>,
) -> Vec<Hook<P>> {
    let mut found: BTreeMap<&str, Vec<Arc<Binding>>> = BTreeMap::new();
    for binding in bindings.values() {
        found
            .entry(binding.policy())
            .or_default()
            .push(Arc::clone(binding));
    }
    let hook = |(name, bindings)| {
        let policy = Arc::clone(policies.get(name)?);
        Some(Hook { policy, bindings })
    };
    found.into_iter().filter_map(hook).collect()
}

/// See the module.
pub struct Policies {
    mutating: ArcSwap<Vec<Hook<MutatingPolicy>>>,
    validating: ArcSwap<Vec<Hook<ValidatingPolicy>>>,
    reader: Arc<dyn ObjectReader>,
    params: Arc<dyn ParamSource>,
    runtime: Runtime,
    observer: Arc<dyn PolicyObserver>,
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policies").finish_non_exhaustive()
    }
}

impl Policies {
    pub fn new(
        reader: Arc<dyn ObjectReader>,
        params: Arc<dyn ParamSource>,
        runtime: Runtime,
        observer: Arc<dyn PolicyObserver>,
    ) -> Arc<Self> {
        Arc::new(Self {
            mutating: ArcSwap::default(),
            validating: ArcSwap::default(),
            reader,
            params,
            runtime,
            observer,
        })
    }

    /// Replaces the policies that may change requests.
    pub fn set_mutating(&self, hooks: Vec<Hook<MutatingPolicy>>) {
        self.mutating.store(Arc::new(hooks));
    }

    /// Replaces the policies that may refuse requests.
    pub fn set_validating(&self, hooks: Vec<Hook<ValidatingPolicy>>) {
        self.validating.store(Arc::new(hooks));
    }
}

/// The group of configurations of admission.
const ADMISSION_GROUP: &str = "admissionregistration.k8s.io";
/// Resources that no policy sees.
const EXEMPT: [&str; 4] = [
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
];

/// Reports whether policies may see a request.
fn may_see(request: &Request<'_>) -> bool {
    let is_policy = request.group == ADMISSION_GROUP && EXEMPT.contains(&request.resource);
    !is_policy && request.may_be_seen()
}
