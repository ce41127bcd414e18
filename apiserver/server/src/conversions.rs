//! Calls of conversion webhooks, over the connections that webhooks of admission have.

use crate::metrics::ConversionMetrics;
use apiserver_egress::{HookCall, HookClient, HookPlace, HookTarget, TargetError, TurnedAway};
use apiserver_registry::version_webhook::{
    ConversionCall, ConversionCallError, ConversionCalls, ConversionOutcome,
};
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery_runtime::Runtime;
use machinery_schema::Ref;
use std::sync::Arc;
use std::time::Duration;

/// Timeout of a conversion, as of upstream's client.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Time that a call waits for its places, which is a matter of others' calls and no failure of the webhook.
const LINE_TIMEOUT: Duration = Duration::from_secs(10);
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
    turned_away: Arc<TurnedAway>,
}

impl Conversions {
    pub(crate) fn new(client: &Arc<HookClient>, runtime: &Runtime, metrics: Arc<ConversionMetrics>) -> Self {
        Self {
            client: Arc::clone(client),
            turned_away: Arc::new(TurnedAway::new(runtime)),
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
            turned_away: Arc::clone(&self.turned_away),
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

/// Waits for the places of a call with so many bytes.
async fn place<'a>(
    runtime: &Runtime,
    target: &'a HookTarget,
    namespace: &'a str,
    bytes: usize,
) -> Result<HookPlace<'a>, ConversionCallError> {
    let entered = runtime
        .timeout(LINE_TIMEOUT, target.enter(namespace, bytes))
        .await;
    entered.map_err(|_| ConversionCallError::Busy)
}

#[derive(Debug)]
struct Webhook {
    target: Result<HookTarget, String>,
    client: Arc<HookClient>,
    runtime: Runtime,
    metrics: Arc<ConversionMetrics>,
    turned_away: Arc<TurnedAway>,
}

#[async_trait]
impl ConversionCall for Webhook {
    async fn post(&self, namespace: &str, review: Vec<u8>) -> Result<Vec<u8>, ConversionCallError> {
        let target = self.target.as_ref();
        let target = target.map_err(|why| ConversionCallError::Failed(why.clone()))?;
        let place = place(&self.runtime, target, namespace, review.len()).await;
        let place = place.inspect_err(|_| self.turned_away.note("ConversionReview"))?;
        let query = format!("timeout={}s", TIMEOUT.as_secs());
        let limit = most_of_answer(review.len());
        let call = HookCall {
            target,
            place,
            query: &query,
            body: review.into(),
            limit,
        };
        let posted = self.runtime.timeout(TIMEOUT, self.client.post(call)).await;
        let failed = |why| Err(ConversionCallError::Failed(why));
        match posted {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => failed(error.to_string()),
            Err(_) => failed(format!(
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

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_runtime::Simulation;

    /// Others' calls are no failure of the webhook: the request is to come again.
    #[test]
    fn conversion_without_a_place_in_time_is_busy() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let target = HookTarget::url_of("https://hooks.example", b"").unwrap();
            let mut others = Vec::new();
            let late = loop {
                match place(&runtime, &target, "blue", MAX_ANSWER_BYTES).await {
                    Ok(taken) => others.push(taken),
                    Err(error) => break error,
                }
            };
            assert_eq!(late, ConversionCallError::Busy);
            assert_eq!(runtime.monotonic(), LINE_TIMEOUT);
            others.pop();
            assert!(place(&runtime, &target, "blue", MAX_ANSWER_BYTES).await.is_ok());
        });
    }
}
