//! ImagePolicyWebhook: a backend is asked whether the images of a pod may run (k8s.io/kubernetes/plugin/pkg/admission/imagepolicy). Off
//! by default, as upstream's, and without a [configuration] there is none.
//!
//! The backend is sent an `ImageReview` with the images of containers and init containers, or of ephemeral containers where those are
//! updated, and the annotations `*.image-policy.k8s.io/*`. Its answers are [remembered](cache) by their question. Where it does not answer,
//! `defaultAllow` decides; upstream's annotation of the pod for that is in a copy which is not stored, so there is none here.

mod cache;
mod configuration;
#[cfg(test)]
pub(super) mod tests;

pub use configuration::Configuration;

use super::event_rate_limit::Clock;
use crate::rejection::cut_to;
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use cache::Cache;
use machinery_meta::syntax;
use machinery_schema::{Ref, Tree};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The kind of what is asked and answered.
pub const IMAGE_REVIEW: &str = "ImageReview";
const API_VERSION: &str = "imagepolicy.k8s.io/v1alpha1";
/// Prefix of keys in the audit event.
const AUDIT_PREFIX: &str = "imagepolicywebhook.image-policy.k8s.io/";
const FAILED_OPEN: &str = "failed-open";
/// A part of the keys of annotations that the backend is sent.
const SENT_ANNOTATION: &str = ".image-policy.k8s.io/";
const EPHEMERAL: &str = "ephemeralcontainers";
/// Audit annotations that are taken of one answer, and bytes of each.
const MAX_ANNOTATIONS: usize = 64;
const MAX_ANNOTATION_BYTES: usize = 16 << 10;
/// Bytes of a reason that a client is sent.
const MAX_REASON_BYTES: usize = 4 << 10;

/// Calls the backend.
#[async_trait]
pub trait ImageReviewer: fmt::Debug + Send + Sync {
    /// The answered review. Reviews of one user have a share of the calls, and those of the control plane's accounts one for each
    /// namespace; none takes longer than `time_left`.
    ///
    /// # Errors
    /// See [`NoReview`].
    async fn review(
        &self,
        review: &Value,
        user: &str,
        namespace: &str,
        time_left: Option<Duration>,
    ) -> Result<Value, NoReview>;
}

/// A review without an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoReview {
    /// Others' reviews are under way: no failure of the backend.
    Busy,
    /// The request's time was over.
    Late,
    /// The backend failed.
    Failed(String),
}

/// The backend's decision as it is written: `null` is no value, as Go reads it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Written {
    allowed: Option<bool>,
    reason: Option<String>,
    audit_annotations: Option<BTreeMap<String, Option<String>>>,
}

/// The backend's decision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Status {
    allowed: bool,
    reason: String,
    audit_annotations: BTreeMap<String, String>,
}

impl From<Written> for Status {
    fn from(written: Written) -> Self {
        let annotations = written.audit_annotations.unwrap_or_default().into_iter();
        Self {
            allowed: written.allowed.unwrap_or_default(),
            reason: written.reason.unwrap_or_default(),
            audit_annotations: annotations
                .map(|(key, value)| (key, value.unwrap_or_default()))
                .collect(),
        }
    }
}

impl Status {
    fn bytes(&self) -> usize {
        let annotations = self.audit_annotations.iter();
        self.reason.len()
            + annotations
                .map(|(key, value)| key.len() + value.len())
                .sum::<usize>()
    }
}

/// See the module.
pub struct ImagePolicyWebhook {
    configuration: Configuration,
    reviewer: Arc<dyn ImageReviewer>,
    cache: Mutex<Cache>,
    clock: Clock,
}

impl fmt::Debug for ImagePolicyWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImagePolicyWebhook")
            .field("configuration", &self.configuration)
            .finish_non_exhaustive()
    }
}

impl ImagePolicyWebhook {
    pub fn new(configuration: Configuration, reviewer: Arc<dyn ImageReviewer>, clock: Clock) -> Self {
        Self {
            configuration,
            reviewer,
            cache: Mutex::default(),
            clock,
        }
    }

    /// The backend's decision, as it is remembered or answered; `None` where it does not answer and pods are let through.
    async fn decision(&self, request: &Request<'_>, spec: &Value) -> Result<Option<Status>, AdmissionError> {
        let digest = cache::digest_of(&spec.to_string());
        if let Some(status) = self.cache.lock().get(&digest, (self.clock)()) {
            return Ok(Some(status));
        }
        let review = json!({
            "kind": IMAGE_REVIEW,
            "apiVersion": API_VERSION,
            "metadata": {},
            "spec": spec,
            "status": {"allowed": false},
        });
        let left = request.remarks.time_left();
        let reviewing = self
            .reviewer
            .review(&review, &request.user.name, request.namespace, left);
        let answer = reviewing.await;
        match answer.and_then(|review| read(&review)) {
            Ok(status) => {
                let ttl = match status.allowed {
                    true => self.configuration.allow_ttl,
                    false => self.configuration.deny_ttl,
                };
                self.cache.lock().put(digest, &status, ttl, (self.clock)());
                Ok(Some(status))
            }
            Err(NoReview::Busy) => Err(AdmissionError::Busy),
            Err(NoReview::Late) => Err(AdmissionError::Timeout(
                "request did not complete within requested timeout".to_owned(),
            )),
            Err(NoReview::Failed(why)) if self.configuration.default_allow => {
                tracing::debug!(%why, "the image policy webhook failed: the pod is let through");
                Ok(None)
            }
            Err(NoReview::Failed(why)) => Err(AdmissionError::forbidden(why)),
        }
    }
}

fn read(review: &Value) -> Result<Status, NoReview> {
    let status = review.get("status").unwrap_or(&Value::Null);
    let written =
        Option::<Written>::deserialize(status).map_err(|error| NoReview::Failed(error.to_string()))?;
    Ok(written.unwrap_or_default().into())
}

/// The question about a pod, as upstream's `ImageReviewSpec`: members that are empty are left out.
fn spec_of(request: &Request<'_>, pod: &Tree) -> Value {
    let lists: &[&str] = match request.subresource {
        EPHEMERAL => &["ephemeralContainers"],
        _ => &["containers", "initContainers"],
    };
    let containers = lists
        .iter()
        .flat_map(|list| pod.at(&["spec", *list]).into_iter().flat_map(Ref::items));
    let images: Vec<Value> = containers
        .map(|own| match own.str_at(&["image"]) {
            "" => json!({}),
            image => json!({"image": image}),
        })
        .collect();
    let annotations = pod.at(&["metadata", "annotations"]);
    let annotations: Map<String, Value> = annotations
        .into_iter()
        .flat_map(Ref::entries)
        .filter(|(key, _)| key.contains(SENT_ANNOTATION))
        .map(|(key, value)| (key.to_owned(), value.as_str().unwrap_or_default().into()))
        .collect();
    let mut spec = Map::new();
    if !images.is_empty() {
        spec.insert("containers".to_owned(), images.into());
    }
    if !annotations.is_empty() {
        spec.insert("annotations".to_owned(), annotations.into());
    }
    if !request.namespace.is_empty() {
        spec.insert("namespace".to_owned(), request.namespace.into());
    }
    spec.into()
}

fn annotate(request: &Request<'_>, status: &Status) {
    let annotations = status.audit_annotations.iter();
    for (key, value) in annotations.take(MAX_ANNOTATIONS) {
        let key = format!("{AUDIT_PREFIX}{key}");
        if syntax::qualified_name(&key).is_empty() {
            let value = cut_to(value.clone(), MAX_ANNOTATION_BYTES);
            request.remarks.annotate(key, value);
        }
    }
}

#[async_trait]
impl Plugin for ImagePolicyWebhook {
    fn name(&self) -> &'static str {
        "ImagePolicyWebhook"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create, Operation::Update]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        matches!(request.operation, Operation::Create | Operation::Update)
            && (request.group, request.resource) == ("", "pods")
            && matches!(request.subresource, "" | EPHEMERAL)
    }

    async fn validate(
        &self,
        request: &Request<'_>,
        object: Option<&Tree>,
        _old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let Some(pod) = object else { return Ok(()) };
        let spec = spec_of(request, pod);
        let Some(status) = self.decision(request, &spec).await? else {
            request
                .remarks
                .annotate(format!("{AUDIT_PREFIX}{FAILED_OPEN}"), "true".to_owned());
            return Ok(());
        };
        annotate(request, &status);
        match (status.allowed, status.reason) {
            (true, _) => Ok(()),
            (false, reason) if reason.is_empty() => Err(AdmissionError::forbidden(
                "one or more images rejected by webhook backend",
            )),
            (false, reason) => Err(AdmissionError::Forbidden(format!(
                "image policy webhook backend denied one or more images: {}",
                cut_to(reason, MAX_REASON_BYTES)
            ))),
        }
    }
}
