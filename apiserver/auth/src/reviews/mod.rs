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
use crate::authz::{AuthorizerChain, Busy};
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
    /// Nothing was decided: the client is to come again.
    #[error(transparent)]
    Busy(#[from] Busy),
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
        review: ReviewRequest<'_>,
        spec: &[u8],
    ) -> Result<Vec<u8>, ReviewError> {
        let spec = if spec.is_empty() { b"{}" } else { spec };
        match kind {
            "SubjectAccessReview" => access::subject(self, review, spec).await,
            "LocalSubjectAccessReview" => access::local(self, review, spec).await,
            "SelfSubjectAccessReview" => access::own(self, review, spec).await,
            "SelfSubjectRulesReview" => rules::own(self, review, spec).await,
            "TokenReview" => token::review(self, review, spec).await,
            "SelfSubjectReview" => token::own(review),
            other => Err(ReviewError::UnknownKind(other.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{block_on, crowded, crowded_tokens};

    #[track_caller]
    fn check(kind: &str, spec: &str) {
        let reviewer = Reviewer {
            authorizers: crowded(),
            tokens: Arc::new(crowded_tokens()),
        };
        let user = UserInfo::named("anna", [UserInfo::AUTHENTICATED]);
        let review = ReviewRequest {
            user: &user,
            namespace: "blue",
            metadata: "{}",
            now: Timestamp::UNIX_EPOCH,
        };
        let answered = block_on(reviewer.answer(kind, review, spec.as_bytes()));
        assert!(
            matches!(answered, Err(ReviewError::Busy(_))),
            "{kind}: {answered:?}"
        );
    }

    #[test]
    fn review_that_is_not_decided_is_no_refusal() {
        let target = r#""resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "blue"}"#;
        check("SelfSubjectAccessReview", &format!("{{{target}}}"));
        check("SubjectAccessReview", &format!(r#"{{"user": "ben", {target}}}"#));
        check(
            "LocalSubjectAccessReview",
            &format!(r#"{{"user": "ben", {target}}}"#),
        );
        check("TokenReview", r#"{"token": "t"}"#);
    }
}
