//! Calls of conversion webhooks, over the connections that webhooks of admission have.

use crate::metrics::ConversionMetrics;
use apiserver_egress::{HookCall, HookClient, HookTarget, TargetError};
use apiserver_registry::version_webhook::{ConversionCall, ConversionCalls, ConversionOutcome};
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery_runtime::Runtime;
use machinery_schema::Ref;
use std::sync::Arc;
use std::time::Duration;

/// Upstream's client gives up then.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of an answer: a batch of objects, each of which may have grown.
const MAX_ANSWER_BYTES: usize = 32 << 20;
/// An answer has so many times the bytes of its review, and so many more: it is read whole before anything of it is known.
const GROWTH: (usize, usize) = (8, 4 << 20);
const HTTPS: i64 = 443;

/// See the module.
#[derive(Debug)]
pub(crate) struct Conversions {
    client: Arc<HookClient>,
    runtime: Runtime,
    metrics: Arc<ConversionMetrics>,
}

impl Conversions {
    pub(crate) fn new(client: &Arc<HookClient>, runtime: &Runtime, metrics: Arc<ConversionMetrics>) -> Self {
        Self {
            client: Arc::clone(client),
            runtime: runtime.clone(),
            metrics,
        }
    }
}

impl ConversionCalls for Conversions {
    fn webhook(&self, client: Ref<'_>) -> Arc<dyn ConversionCall> {
        Arc::new(Webhook {
            target: target(client).map_err(|error| error.to_string()),
            client: Arc::clone(&self.client),
            runtime: self.runtime.clone(),
            metrics: Arc::clone(&self.metrics),
        })
    }
}

fn most_of_answer(review: usize) -> usize {
    review
        .saturating_mul(GROWTH.0)
        .saturating_add(GROWTH.1)
        .min(MAX_ANSWER_BYTES)
}

fn target(client: Ref<'_>) -> Result<HookTarget, TargetError> {
    let bundle = STANDARD.decode(client.str("caBundle")).unwrap_or_default();
    let service = client.get("service").filter(|own| !own.is_null());
    let Some(service) = service else {
        return match client.str("url") {
            "" => Err(TargetError::Missing),
            url => HookTarget::url_of(url, &bundle),
        };
    };
    let port = service.get("port").and_then(Ref::as_i64).unwrap_or(HTTPS);
    let port = u16::try_from(port).map_err(|error| TargetError::Url(error.to_string()))?;
    let name = (service.str("namespace"), service.str("name"));
    HookTarget::service(name, port, service.str("path"), &bundle)
}

#[derive(Debug)]
struct Webhook {
    target: Result<HookTarget, String>,
    client: Arc<HookClient>,
    runtime: Runtime,
    metrics: Arc<ConversionMetrics>,
}

#[async_trait]
impl ConversionCall for Webhook {
    async fn post(&self, namespace: &str, review: Vec<u8>) -> Result<Vec<u8>, String> {
        let target = self.target.as_ref().map_err(Clone::clone)?;
        let query = format!("timeout={}s", TIMEOUT.as_secs());
        let posted = async {
            let place = target.enter(namespace, review.len()).await;
            let limit = most_of_answer(review.len());
            let call = HookCall {
                target,
                place,
                query: &query,
                body: review.into(),
                limit,
            };
            self.client.post(call).await
        };
        match self.runtime.timeout(TIMEOUT, posted).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!(
                "Post {:?}: context deadline exceeded",
                target.url(&query)
            )),
        }
    }

    fn now(&self) -> Duration {
        self.runtime.monotonic()
    }

    fn uid(&self) -> String {
        self.runtime.uuid().to_string()
    }

    fn ended(&self, outcome: ConversionOutcome<'_>) {
        self.metrics.ended(outcome);
    }
}
