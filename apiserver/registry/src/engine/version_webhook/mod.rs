//! Conversion of custom objects by a webhook (`conversion.strategy: Webhook`): a ConversionReview goes out, objects of another version
//! come back.
//!
//! Storage keeps each object in the version in which it was written last, which the record names. A row of such a kind is a form of its
//! own: what a [`Store`](crate::Store) of it hands out is converted and encoded in its version already
//! (`store/shown.rs`), so that nothing behind the store treats it otherwise than other kinds, and what is written is brought into the
//! version that is stored right before the commit.
//!
//! [`review`] is what is sent and what may come back, [`cache`] what was converted lately, [`room`] how much at a time. The webhook decides about spec, status, labels
//! and annotations of an object, and about nothing else of its metadata.

mod cache;
mod review;
mod room;
#[cfg(test)]
mod tests;

use crate::engine::error::RegistryError;
use crate::engine::selectable::Selectable;
use crate::engine::turns::Turns;
use async_trait::async_trait;
use cache::Cache;
pub(crate) use cache::Converted;
use machinery_meta::GroupVersionKind;
use machinery_schema::{Ref, Schema, Tree, TypeId};
use review::Review;
pub use review::ReviewVersion;
pub(crate) use room::ListPlace;
use room::ListRoom;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Objects of one review.
const MAX_OBJECTS: usize = 500;
/// Bytes of the reason of a failure, which may quote the answer.
const MAX_REASON_BYTES: usize = 32 << 10;
/// Bytes of objects of one review; one object may have more.
const MAX_BYTES: usize = 2 << 20;

/// Upstream's word for a call without an answer.
const CALL_FAILURE: &str = "conversion_webhook_call_failure";

/// The end of a conversion for which the webhook was called, for metrics.
#[derive(Debug, Clone, Copy)]
pub struct ConversionOutcome<'a> {
    pub definition: &'a str,
    pub from: &'a str,
    pub to: &'a str,
    pub took: Duration,
    /// Upstream's word for the failure.
    pub failure: Option<&'static str>,
}

/// A ConversionReview without an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConversionCallError {
    /// The webhook was not called, since others' calls had all of its places for too long.
    #[error("too many requests wait for the webhook")]
    Busy,
    #[error("{0}")]
    Failed(String),
}

/// The way to one conversion webhook.
#[async_trait]
pub trait ConversionCall: fmt::Debug + Send + Sync {
    /// Posts a ConversionReview for objects of a namespace (empty for none, or for several), and returns the answer's body.
    ///
    /// # Errors
    /// See [`ConversionCallError`].
    async fn post(&self, namespace: &str, review: Vec<u8>) -> Result<Vec<u8>, ConversionCallError>;

    /// Time by a monotonic clock.
    fn now(&self) -> Duration;

    /// A fresh uid.
    fn uid(&self) -> String;

    /// Takes the end of a conversion.
    fn ended(&self, outcome: ConversionOutcome<'_>);
}

/// Makes ways to conversion webhooks; filled by the server.
pub trait ConversionCalls: fmt::Debug + Send + Sync {
    /// The way to the webhook with this `clientConfig`.
    fn webhook(&self, client: Ref<'_>) -> Arc<dyn ConversionCall>;
}

/// The form in which objects are stored from now on.
#[derive(Debug, Clone)]
pub(crate) struct StorageVersion {
    pub(crate) gvk: GroupVersionKind,
    pub(crate) schema: Arc<Schema>,
    pub(crate) ty: TypeId,
    pub(crate) fingerprint: u64,
    /// Fields that records of this form carry.
    pub(crate) selectable: Vec<Selectable>,
}

/// The webhook of a definition.
#[derive(Debug)]
pub struct VersionWebhook {
    definition: String,
    call: Arc<dyn ConversionCall>,
    review: Option<ReviewVersion>,
    pub(crate) storage: StorageVersion,
    pub(crate) cache: Cache,
    lists: ListRoom,
}

/// A conversion that came to nothing.
enum Failure {
    /// The reason, and upstream's word for it.
    Failed(String, &'static str),
    /// The request may come again.
    Busy,
}

impl VersionWebhook {
    /// The webhook of a definition's spec.
    pub(crate) fn new(
        definition: &str,
        conversion: Ref<'_>,
        calls: &dyn ConversionCalls,
        storage: StorageVersion,
    ) -> Option<Self> {
        let webhook = conversion.get("webhook")?;
        let mut reviews = webhook.list("conversionReviewVersions").filter_map(Ref::as_str);
        Some(Self {
            definition: definition.to_owned(),
            call: calls.webhook(webhook.get("clientConfig")?),
            review: reviews.find_map(ReviewVersion::parse),
            storage,
            cache: Cache::default(),
            lists: ListRoom::default(),
        })
    }

    /// Waits for the room of a list of a namespace (empty for one of several) with so many bytes to convert.
    pub(crate) async fn room(&self, namespace: &str, bytes: usize) -> Option<ListPlace<'_>> {
        self.lists.enter(namespace, bytes).await
    }

    /// Objects of other versions in this one, as documents, in their order. Large ones are written and read in turns.
    pub(crate) async fn convert(
        &self,
        objects: Vec<Tree>,
        to: &GroupVersionKind,
        turns: &Turns,
    ) -> Result<Vec<Tree>, RegistryError> {
        let mut converted = Vec::with_capacity(objects.len());
        let mut rest = objects;
        while !rest.is_empty() {
            let after = rest.split_off(batch_length(&rest));
            converted.extend(self.convert_batch(rest, to, turns).await?);
            rest = after;
        }
        Ok(converted)
    }

    async fn convert_batch(
        &self,
        objects: Vec<Tree>,
        to: &GroupVersionKind,
        turns: &Turns,
    ) -> Result<Vec<Tree>, RegistryError> {
        let first = objects.first().map_or("", |own| own.str_at(&["apiVersion"]));
        let first = first.to_owned();
        let begun = self.call.now();
        let converted = self.reviewed(objects, to, turns).await;
        let failure = match &converted {
            Ok(_) => Some(None),
            Err(Failure::Failed(_, word)) => Some(Some(*word)),
            // Others were in the way; the webhook has not failed.
            Err(Failure::Busy) => None,
        };
        if let Some(failure) = failure {
            self.call.ended(ConversionOutcome {
                definition: &self.definition,
                from: first.rsplit('/').next().unwrap_or_default(),
                to: &to.version,
                took: self.call.now().saturating_sub(begun),
                failure,
            });
        }
        converted.map_err(|failure| match failure {
            Failure::Busy => RegistryError::busy(),
            Failure::Failed(mut why, _) => {
                why.truncate(why.floor_char_boundary(MAX_REASON_BYTES));
                let of = format!("conversion webhook for {first}, Kind={}", to.kind);
                RegistryError::Unclassified(format!("{of} {why}"))
            }
        })
    }

    async fn reviewed(
        &self,
        objects: Vec<Tree>,
        to: &GroupVersionKind,
        turns: &Turns,
    ) -> Result<Vec<Tree>, Failure> {
        let Some(version) = self.review else {
            return Err(malformed("no supported conversion review versions".to_owned()));
        };
        let review = Review {
            version,
            uid: self.call.uid(),
            to: to.clone(),
        };
        let bytes = objects.iter().map(Tree::arena_bytes).sum();
        let write = move || (review.json(&objects), review, objects);
        let (body, review, objects) = turns.run(bytes, write).await;
        let answer = self
            .call
            .post(namespace_of(&objects), body)
            .await
            .map_err(|error| match error {
                ConversionCallError::Busy => Failure::Busy,
                ConversionCallError::Failed(why) => Failure::Failed(format!("failed: {why}"), CALL_FAILURE),
            })?;
        turns
            .run(answer.len(), move || answered(&review, &answer, &objects))
            .await
    }
}

/// The namespace of all objects; empty where they have several, or none.
fn namespace_of(objects: &[Tree]) -> &str {
    fn of(object: &Tree) -> &str {
        object.str_at(&["metadata", "namespace"])
    }
    let first = objects.first().map(of);
    let same = first.filter(|first| objects.iter().all(|object| of(object) == *first));
    same.unwrap_or_default()
}

fn malformed(why: String) -> Failure {
    Failure::Failed(
        format!("failed: {why}"),
        "conversion_webhook_malformed_response_failure",
    )
}

/// The objects of a webhook's answer, each with the metadata that it had.
fn answered(review: &Review, answer: &[u8], objects: &[Tree]) -> Result<Vec<Tree>, Failure> {
    let converted = review.read(answer).map_err(malformed)?;
    if converted.len() != objects.len() {
        let why = format!("returned {} objects, expected {}", converted.len(), objects.len());
        return Err(Failure::Failed(
            why,
            "conversion_webhook_partial_response_failure",
        ));
    }
    let each = converted.into_iter().zip(objects).enumerate();
    let restored = each.map(|(at, (own, before))| {
        review::restored(own, before, &review.to).map_err(|why| {
            let word = "conversion_webhook_invalid_converted_object_failure";
            Failure::Failed(
                format!("returned invalid converted object at index {at}: {why}"),
                word,
            )
        })
    });
    restored.collect()
}

/// Number of objects that go into one review.
fn batch_length(objects: &[Tree]) -> usize {
    let mut bytes = 0;
    let fitting = objects.iter().take(MAX_OBJECTS).take_while(|own| {
        let fits = bytes < MAX_BYTES;
        bytes += own.arena_bytes();
        fits
    });
    fitting.count().max(1)
}
