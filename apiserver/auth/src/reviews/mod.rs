//! The review kinds: questions posted as objects, answered and never stored.
//!
//! [`Reviewer::answer`] takes the kind and the posted `spec` as JSON and gives the `status` as JSON; the endpoints
//! decode and encode the object around it.

mod access;
mod rules;
mod selectors;
mod spec;
mod token;

pub use spec::{
    NonResourceAttributes, ResourceAttributes, SelectorAttributes, SelectorRequirement,
    SubjectAccessReviewSpec,
};

use crate::authn::TokenAuthenticators;
use crate::authz::AuthorizerChain;
use jiff::Timestamp;
use machinery_meta::{FieldError, UserInfo};
use std::sync::Arc;

/// Failures to answer a review.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    #[error("{0}")]
    BadRequest(String),
    #[error("the review is invalid")]
    Invalid(Vec<FieldError>),
    #[error("the review cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("{0} is not a review")]
    UnknownKind(String),
}

/// Answers reviews.
#[derive(Debug, Clone)]
pub struct Reviewer {
    pub authorizers: AuthorizerChain,
    pub tokens: Arc<TokenAuthenticators>,
}

/// A request for a review: its user, and its place in the API.
#[derive(Debug, Clone, Copy)]
pub struct ReviewRequest<'a> {
    pub user: &'a UserInfo,
    /// Of the request; empty at the cluster scope.
    pub namespace: &'a str,
    /// Of the posted object, as JSON.
    pub metadata: &'a str,
    pub now: Timestamp,
}

impl Reviewer {
    /// The `status` of a review of this kind.
    pub async fn answer(
        &self,
        kind: &str,
        asked: ReviewRequest<'_>,
        spec: &[u8],
    ) -> Result<Vec<u8>, ReviewError> {
        let spec = if spec.is_empty() { b"{}" } else { spec };
        match kind {
            "SubjectAccessReview" => access::subject(self, asked, spec).await,
            "LocalSubjectAccessReview" => access::local(self, asked, spec).await,
            "SelfSubjectAccessReview" => access::own(self, asked, spec).await,
            "SelfSubjectRulesReview" => rules::own(self, asked, spec).await,
            "TokenReview" => token::review(self, asked, spec).await,
            "SelfSubjectReview" => token::own(asked),
            other => Err(ReviewError::UnknownKind(other.to_owned())),
        }
    }
}
