//! Reviews: SubjectAccessReview and its kin, TokenReview, SelfSubjectReview.

use apiserver_registry::{Admitted, RegistryError, RequestContext};
use async_trait::async_trait;
use machinery_schema::Tree;

/// Answers reviews.
#[async_trait]
pub trait Reviews: Send + Sync {
    /// Answers a review: the object with its status.
    async fn review(&self, _: &RequestContext, admitted: &Admitted, _: Tree) -> Result<Tree, RegistryError> {
        let kind = &admitted.attributes().kind.kind;
        Err(RegistryError::Unavailable(format!(
            "no authorizer answers {kind} here"
        )))
    }
}
