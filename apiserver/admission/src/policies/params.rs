//! Parameters of policies: the objects that a binding names for a request (upstream's `CollectParams`).

use super::definition::{Policy, Reference};
use crate::matching::Selection;
use crate::{AdmissionError, Host};
use async_trait::async_trait;
use machinery_meta::GroupVersionKind;
use machinery_meta::label_selector::LabelSelector;
use machinery_schema::Tree;
use std::fmt;

/// Parameters of one binding for one request. Upstream has no such bound; a policy is evaluated on each.
pub(super) const MAX_PARAMS: usize = 1_000;

/// The way to parameters, in the version that a policy names.
#[async_trait]
pub trait ParamSource: fmt::Debug + Send + Sync {
    /// Reports whether objects of a kind are in namespaces; `None` where there is no such kind.
    fn is_namespaced(&self, kind: &GroupVersionKind) -> Option<bool>;

    /// One object.
    ///
    /// # Errors
    /// It cannot be read; [`AdmissionError::Busy`] and [`AdmissionError::Timeout`] are about the request.
    async fn get(
        &self,
        kind: &GroupVersionKind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Tree>, AdmissionError>;

    /// Objects that a selector matches, at most so many. Reading them is work of the request, whose host gives it a turn.
    ///
    /// # Errors
    /// As of `get`.
    async fn list(
        &self,
        kind: &GroupVersionKind,
        namespace: &str,
        selector: &LabelSelector,
        most: usize,
        host: &dyn Host,
    ) -> Result<Vec<Tree>, AdmissionError>;
}

/// The scope of a policy's parameters.
///
/// # Errors
/// There is no such kind.
pub(super) fn scope(source: &dyn ParamSource, policy: &Policy) -> Result<bool, String> {
    let Some(kind) = &policy.param_kind else {
        return Ok(false);
    };
    source.is_namespaced(kind).ok_or_else(|| {
        format!(
            "failed to find resource referenced by paramKind: '{}/{}, Kind={}'",
            kind.group, kind.version, kind.kind
        )
    })
}

/// The parameters that a policy is evaluated on, one after the other; `None` stands for no parameter.
///
/// # Errors
/// The binding does not fit the kind, or wants requests refused that it has no parameters for; or an error about the request
/// itself ([`AdmissionError::is_of_request`]).
pub(super) async fn collect(
    source: &dyn ParamSource,
    policy: &Policy,
    reference: Option<&Reference>,
    namespaced: bool,
    selection: &Selection<'_>,
) -> Result<Vec<Option<Tree>>, AdmissionError> {
    let (Some(kind), Some(reference)) = (&policy.param_kind, reference) else {
        return Ok(vec![None]);
    };
    let namespace = match (namespaced, reference.namespace.as_str(), selection.namespace()) {
        (true, "", "") => {
            let why =
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
            return Err(AdmissionError::Internal(why.to_owned()));
        }
        (true, "", own) | (true, own, _) => own,
        (false, "", _) => "",
        (false, ..) => {
            let why = "paramRef.namespace must not be provided for a cluster-scoped `paramKind`";
            return Err(AdmissionError::Internal(why.to_owned()));
        }
    };
    let found = match (reference.name.as_str(), &reference.selector) {
        ("", None) => {
            let why = "one of name or selector must be provided";
            return Err(AdmissionError::Internal(why.to_owned()));
        }
        ("", Some(selector)) => {
            let selector = selector.as_ref();
            let selector = selector.map_err(|why| AdmissionError::Internal(why.clone()))?;
            let found = source.list(kind, namespace, selector, MAX_PARAMS + 1, selection.host);
            let found = found.await?;
            if found.len() > MAX_PARAMS {
                let why = format!("paramRef selects more than {MAX_PARAMS} objects");
                return Err(AdmissionError::Internal(why));
            }
            found
        }
        (_, Some(_)) => {
            let why = "paramRef.name and paramRef.selector are mutually exclusive";
            return Err(AdmissionError::Internal(why.to_owned()));
        }
        (name, None) => source.get(kind, namespace, name).await?.into_iter().collect(),
    };
    if found.is_empty() && reference.denies_without {
        let why = "no params found for policy binding with `Deny` parameterNotFoundAction";
        return Err(AdmissionError::Internal(why.to_owned()));
    }
    Ok(found.into_iter().map(Some).collect())
}
