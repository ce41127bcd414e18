//! Matching of requests by rules and selectors, for webhooks and policies alike.
//!
//! [`Constraints`] are what a configuration says of the requests that it is for, compiled; a [`Selection`] is one request, matched with each of
//! them: what it reads for one (equivalent resources, the namespace) it keeps for the others. [`request`] is the request as webhooks are sent
//! it and as expressions see it.

mod candidate;
pub(crate) mod request;
mod rules;
mod selection;

pub(crate) use candidate::{Candidate, PatchFailure, patched, strictly_patched};
#[cfg(test)]
pub(crate) use rules::Asked;
pub(crate) use rules::Rule;
pub(crate) use selection::{Objects, Selection};

use k8s_openapi::api::admissionregistration::v1::MatchResources;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as WrittenSelector;
use machinery_meta::label_selector::LabelSelector;
use machinery_semantics::selectors::from_api;

/// Rules and selectors.
#[derive(Debug)]
pub(crate) struct Constraints {
    pub(crate) rules: Vec<Rule>,
    /// Exceptions: a request that matches one of these does not match.
    pub(crate) excluded: Vec<Rule>,
    /// Without rules everything matches.
    pub(crate) without_rules: bool,
    pub(crate) matches_equivalents: bool,
    pub(crate) namespace_selector: Result<LabelSelector, String>,
    pub(crate) object_selector: Result<LabelSelector, String>,
}

impl From<MatchResources> for Constraints {
    fn from(own: MatchResources) -> Self {
        let rules = |own: Option<Vec<_>>| own.unwrap_or_default().into_iter().map(Rule::from).collect();
        Self {
            rules: rules(own.resource_rules),
            excluded: rules(own.exclude_resource_rules),
            without_rules: true,
            matches_equivalents: is_equivalent(own.match_policy.as_deref()),
            namespace_selector: required(own.namespace_selector.as_ref(), "namespace"),
            object_selector: required(own.object_selector.as_ref(), "object"),
        }
    }
}

/// Reports whether a match policy is the one that is written by default.
pub(crate) fn is_equivalent(policy: Option<&str>) -> bool {
    policy == Some("Equivalent")
}

/// No selector matches nothing; the defaults write an empty one, which matches everything.
pub(crate) fn selector(written: Option<&WrittenSelector>) -> Result<LabelSelector, String> {
    let selector = from_api(written).map_err(|error| error.0)?;
    match selector {
        Some(selector) => Ok(selector),
        None => LabelSelector::parse("a,!a").map_err(|error| error.0),
    }
}

/// The same where upstream takes none for an error.
fn required(written: Option<&WrittenSelector>, of: &str) -> Result<LabelSelector, String> {
    let absent =
        || format!("a nil {of} selector was passed, please ensure selectors are initialized properly");
    selector(Some(written.ok_or_else(absent)?))
}
