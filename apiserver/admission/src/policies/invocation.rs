//! Policies that a request matches, with their bindings and parameters: each is an invocation.

use super::Policies;
use super::definition::{Binding, Policy};
use super::params;
use crate::AdmissionError;
use crate::expressions::Inputs;
use crate::host::Equivalent;
use crate::matching::{Objects, Selection, request};
use machinery_cel::RUNTIME_BUDGET;
use machinery_schema::Tree;
use serde_json::Value as Json;
use std::time::Duration;

/// Cost of all policies for one request. Upstream has no bound for all of them together.
const REQUEST_BUDGET: u64 = 20 * RUNTIME_BUDGET;
/// Cost from which on others get a turn before the next evaluation.
const LONG: u64 = 1_000_000;

/// A policy that cannot be evaluated, or one of its bindings.
pub(super) struct ConfigError<'h> {
    pub(super) policy: &'h Policy,
    pub(super) binding: Option<&'h Binding>,
    pub(super) why: String,
}

/// The reason for which a policy or a binding is not evaluated.
pub(super) enum Skipped<'h> {
    /// The failure policy decides.
    Config(ConfigError<'h>),
    /// The request ends.
    Request(AdmissionError),
}

impl<'h> Skipped<'h> {
    /// Notes an error of the configuration; one of the request ends it.
    pub(super) fn noted(self, note: impl FnOnce(&ConfigError<'h>)) -> Result<(), AdmissionError> {
        match self {
            Self::Config(error) => {
                note(&error);
                Ok(())
            }
            Self::Request(error) => Err(error),
        }
    }

    pub(super) fn of(policy: &'h Policy, binding: Option<&'h Binding>, error: AdmissionError) -> Self {
        match error.is_of_request() {
            true => Self::Request(error),
            false => {
                let why = error.to_string();
                Self::Config(ConfigError { policy, binding, why })
            }
        }
    }
}

/// The objects of a request in one version.
pub(super) struct Version {
    pub(super) to: Equivalent,
    pub(super) request: Json,
    /// `None` where they are the request's own.
    converted: Option<(Option<Tree>, Option<Tree>)>,
}

impl Version {
    /// The objects in this version.
    pub(super) fn objects<'a>(&'a self, own: Objects<'a>) -> Objects<'a> {
        match &self.converted {
            None => own,
            Some((new, old)) => Objects {
                new: new.as_ref(),
                old: old.as_ref(),
            },
        }
    }
}

/// Brings a request's objects into a version.
///
/// # Errors
/// They cannot be converted.
pub(super) async fn version(
    selection: &Selection<'_>,
    objects: Objects<'_>,
    to: &Equivalent,
) -> Result<Version, AdmissionError> {
    let own = selection.own_version();
    let converted = match to.kind == own.kind {
        true => None,
        false => {
            let new = selection.converted(objects.new, &own, to).await?;
            Some((new, selection.converted(objects.old, &own, to).await?))
        }
    };
    Ok(Version {
        to: to.clone(),
        request: request::json(selection, to),
        converted,
    })
}

/// The version in which a request matches a policy; `None` where it does not.
pub(super) async fn matching<'h>(
    policy: &'h Policy,
    selection: &Selection<'_>,
    objects: Objects<'_>,
) -> Result<Option<Equivalent>, Skipped<'h>> {
    let Some(constraints) = &policy.constraints else {
        let why = "policy contained no match constraints, a required field".to_owned();
        let binding = None;
        return Err(Skipped::Config(ConfigError { policy, binding, why }));
    };
    let found = selection.matching(constraints, objects).await;
    found.map_err(|error| Skipped::of(policy, None, error))
}

impl Policies {
    /// The scope of a policy's parameters.
    pub(super) fn scope<'h>(&self, policy: &'h Policy) -> Result<bool, Skipped<'h>> {
        let failed = |why| ConfigError {
            policy,
            binding: None,
            why,
        };
        params::scope(&*self.params, policy).map_err(|why| Skipped::Config(failed(why)))
    }

    /// The parameters of a binding that a request matches; none where it does not.
    pub(super) async fn params<'h>(
        &self,
        policy: &'h Policy,
        binding: &'h Binding,
        namespaced: bool,
        selection: &Selection<'_>,
        objects: Objects<'_>,
    ) -> Result<Vec<Option<Tree>>, Skipped<'h>> {
        let failed = |error| Skipped::of(policy, Some(binding), error);
        if let Some(constraints) = &binding.constraints {
            let found = selection.matching(constraints, objects).await;
            if found.map_err(failed)?.is_none() {
                return Ok(Vec::new());
            }
        }
        let reference = binding.params.as_ref();
        let found = params::collect(&*self.params, policy, reference, namespaced, selection).await;
        found.map_err(failed)
    }

    /// The request's namespace as expressions see it; a namespace itself has none.
    pub(super) async fn namespace_object(
        &self,
        selection: &Selection<'_>,
    ) -> Result<Option<Json>, AdmissionError> {
        if selection.namespace().is_empty() || selection.is_of_namespaces() {
            return Ok(None);
        }
        let read = selection.namespace_object().await?;
        let mut whole: Json = serde_json::from_slice(&read.json)
            .map_err(|error| AdmissionError::Internal(error.to_string()))?;
        if let Some(metadata) = whole.get_mut("metadata").and_then(Json::as_object_mut) {
            metadata.remove("managedFields");
            metadata.remove("ownerReferences");
        }
        Ok(Some(whole))
    }
}

/// Cost of a request's policies so far.
pub(super) struct Spending {
    left: u64,
}

impl Spending {
    pub(super) fn new() -> Self {
        Self { left: REQUEST_BUDGET }
    }

    /// The budget of one evaluation.
    ///
    /// # Errors
    /// The request's policies cost more than they may, or its time is over.
    pub(super) async fn next(&self, inputs: &Inputs<'_>) -> Result<u64, AdmissionError> {
        if inputs.selection.host.time_left() == Some(Duration::ZERO) {
            let why = "request did not complete within requested timeout";
            return Err(AdmissionError::Timeout(why.to_owned()));
        }
        if self.left == 0 {
            let why = "the admission policies that apply to the request cost more than one request may";
            return Err(AdmissionError::Forbidden(why.to_owned()));
        }
        // Large objects, and many policies, are heavy work.
        let bytes = match REQUEST_BUDGET - self.left >= LONG {
            true => usize::MAX,
            false => inputs.bytes(),
        };
        inputs.selection.host.heavy_from(bytes).await?;
        Ok(RUNTIME_BUDGET)
    }

    pub(super) fn spend(&mut self, cost: u64) {
        self.left = self.left.saturating_sub(cost);
    }
}
