//! Calls of the backend of ImagePolicyWebhook, as those of the other webhooks that a kubeconfig names.

use apiserver_admission::plugins::image_policy::{Configuration, IMAGE_REVIEW, ImageReviewer, NoReview};
use apiserver_auth::{
    KubeconfigError, REVIEW_CALL_TIMEOUT, ReviewCallError, ReviewFlow, ReviewWebhook, share_in,
};
use apiserver_egress::Dialer;
use async_trait::async_trait;
use machinery_runtime::Runtime;
use serde_json::Value;
use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub(super) struct ImageReviews {
    webhook: ReviewWebhook,
    runtime: Runtime,
}

impl ImageReviews {
    /// # Errors
    /// See [`KubeconfigError`].
    pub(super) fn open(configuration: &Configuration, dialer: &Dialer) -> Result<Self, KubeconfigError> {
        let path = &configuration.kube_config_file;
        let webhook = ReviewWebhook::open(path, dialer.clone(), REVIEW_CALL_TIMEOUT)?;
        Ok(Self {
            webhook: webhook.with_first_pause(configuration.retry_backoff),
            runtime: dialer.runtime().clone(),
        })
    }
}

#[async_trait]
impl ImageReviewer for ImageReviews {
    async fn review(
        &self,
        review: &Value,
        user: &str,
        namespace: &str,
        time_left: Option<Duration>,
    ) -> Result<Value, NoReview> {
        // The namespace exists: NamespaceLifecycle has looked, so a client invents none.
        let share = share_in(user, namespace);
        let flow = ReviewFlow::of_user(&share);
        let reviewing = self
            .webhook
            .review(IMAGE_REVIEW, review, flow, &|_| {}, std::future::pending());
        let answer = match time_left {
            Some(left) => self.runtime.timeout(left, reviewing).await,
            None => Ok(reviewing.await),
        };
        match answer {
            Err(_) => Err(NoReview::Late),
            Ok(Ok(review)) => Ok(review),
            Ok(Err(ReviewCallError::Busy | ReviewCallError::Abandoned)) => Err(NoReview::Busy),
            Ok(Err(error)) => Err(NoReview::Failed(error.to_string())),
        }
    }
}
