//! Answers to reviews, by the authenticators and authorizers.

use super::ServerHooks;
use super::objects::{invalid, member_json, spec_json, with_members};
use apiserver_auth::reviews::{ReviewError, ReviewRequest};
use apiserver_endpoints::Reviews;
use apiserver_registry::context::LARGE_OBJECT_BYTES;
use apiserver_registry::{Admitted, RegistryError, RequestContext};
use async_trait::async_trait;
use machinery_schema::Tree;

/// Work on a review, a large one in turn with other heavy work.
async fn on_review<T>(
    ctx: &RequestContext,
    review: &Tree,
    work: impl FnOnce(&Tree) -> Result<T, RegistryError>,
) -> Result<T, RegistryError> {
    ctx.heavy_from(review.arena_bytes(), LARGE_OBJECT_BYTES).await?;
    work(review)
}

#[async_trait]
impl Reviews for ServerHooks {
    async fn review(
        &self,
        ctx: &RequestContext,
        admitted: &Admitted,
        object: Tree,
    ) -> Result<Tree, RegistryError> {
        let attributes = admitted.attributes();
        let (kind, namespace) = (attributes.kind.kind.as_str(), attributes.namespace.as_str());
        let read = on_review(ctx, &object, |object| {
            Ok((spec_json(object), member_json(object, "metadata")))
        });
        let (spec, metadata) = read.await?;
        let review = ReviewRequest {
            user: &ctx.user,
            namespace,
            metadata: &metadata,
            now: ctx.runtime.now(),
        };
        let answered = self.reviewer.answer(kind, review, spec.as_bytes()).await;
        let status = answered.map_err(|error| match error {
            ReviewError::BadRequest(message) => RegistryError::BadRequest(message),
            // Upstream leaves the kind out.
            ReviewError::Invalid(errors) => invalid("authorization.k8s.io", "", "", errors),
            ReviewError::Busy(_) => RegistryError::busy(),
            other => RegistryError::Internal(other.to_string()),
        })?;
        let status = String::from_utf8(status).map_err(|error| RegistryError::Internal(error.to_string()))?;
        if kind == "SelfSubjectRulesReview" {
            // Upstream answers with a new object.
            return with_members(
                &object,
                &[("metadata", "{}"), ("spec", "{}"), ("status", &status)],
            );
        }
        if kind != "SelfSubjectReview" {
            let answer = move |object: &Tree| with_members(object, &[("status", &status)]);
            return on_review(ctx, &object, answer).await;
        }
        let created = ctx.runtime.now().strftime("%Y-%m-%dT%H:%M:%SZ");
        let meta = format!(r#"{{"creationTimestamp":"{created}"}}"#);
        with_members(&object, &[("metadata", &meta), ("status", &status)])
    }
}
