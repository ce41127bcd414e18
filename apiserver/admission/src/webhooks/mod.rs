//! Webhooks of MutatingWebhookConfigurations and ValidatingWebhookConfigurations, as plugins of the chain.
//!
//! [`Webhooks`] holds the webhooks of all configurations, compiled; the server replaces them as configurations change, so that a
//! request reads none, and one without webhooks costs a look at two empty lists. A request goes through [`matching`](crate::matching):
//! selectors and rules, by its own resource or an equivalent one, and through [`conditions`]. [`mutating`] calls one webhook after the other and applies its patch;
//! [`validating`] calls all at once. [`review`] is what is sent, [`answer`] what may come back, [`call`] the call with its time limit
//! and its errors.
//!
//! Requests for configurations of admission are never sent, so that a broken webhook can be removed; nor are reviews of
//! access, without which no request could pass.

mod answer;
mod call;
mod conditions;
mod configuration;
mod mutating;
mod observer;
mod review;
mod validating;

#[cfg(test)]
pub(crate) mod tests;

pub use configuration::{ConfiguredWebhooks, Webhook};
pub use mutating::MutatingWebhooks;
pub use observer::{WebhookCall, WebhookObserver};
pub use validating::ValidatingWebhooks;

use crate::Request;
use apiserver_egress::{HookCall, HookClient, HookError, TurnedAway};
use arc_swap::ArcSwap;
use async_trait::async_trait;
use machinery_meta::reader::ObjectReader;
use machinery_runtime::Runtime;
use std::fmt;
use std::sync::Arc;

/// Webhooks in calling order.
pub type Ordered = Vec<Arc<Webhook>>;

/// The way to webhooks.
#[async_trait]
pub trait WebhookClient: Send + Sync {
    /// Posts a review, and returns the answer's body.
    async fn post(&self, call: HookCall<'_>) -> Result<Vec<u8>, HookError>;
}

#[async_trait]
impl WebhookClient for HookClient {
    async fn post(&self, call: HookCall<'_>) -> Result<Vec<u8>, HookError> {
        HookClient::post(self, call).await
    }
}

/// See the module.
pub struct Webhooks {
    mutating: ArcSwap<Ordered>,
    validating: ArcSwap<Ordered>,
    client: Arc<dyn WebhookClient>,
    reader: Arc<dyn ObjectReader>,
    runtime: Runtime,
    observer: Arc<dyn WebhookObserver>,
    turned_away: TurnedAway,
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhooks").finish_non_exhaustive()
    }
}

impl Webhooks {
    pub fn new(
        client: Arc<dyn WebhookClient>,
        reader: Arc<dyn ObjectReader>,
        runtime: Runtime,
        observer: Arc<dyn WebhookObserver>,
    ) -> Arc<Self> {
        Arc::new(Self {
            mutating: ArcSwap::default(),
            validating: ArcSwap::default(),
            client,
            reader,
            turned_away: TurnedAway::new(&runtime),
            runtime,
            observer,
        })
    }

    /// Replaces the webhooks that may change requests.
    pub fn set_mutating(&self, webhooks: Ordered) {
        self.mutating.store(Arc::new(webhooks));
    }

    /// Replaces the webhooks that may refuse requests.
    pub fn set_validating(&self, webhooks: Ordered) {
        self.validating.store(Arc::new(webhooks));
    }
}

/// The group of configurations of admission.
const ADMISSION_GROUP: &str = "admissionregistration.k8s.io";
/// Kinds that no webhook sees.
const EXEMPT_KINDS: [&str; 6] = [
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
];
/// Reports whether webhooks may see a request.
fn may_see(request: &Request<'_>) -> bool {
    let is_configuration = request
        .host
        .is_some_and(|host| host.kind().group == ADMISSION_GROUP)
        && EXEMPT_KINDS.contains(&request.kind);
    !is_configuration && request.may_be_seen()
}
