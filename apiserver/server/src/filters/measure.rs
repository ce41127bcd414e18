//! Counts and times requests, under upstream's metric names. What a client that went had begun is counted as well.

use super::completion::{Completion, Outcome};
use crate::exchange::{Exchange, Response};
use crate::handler_chain::{Filter, Next};
use crate::metrics::{Metrics, RequestLabels};
use crate::server::Core;
use apiserver_endpoints::RequestInfo;
use apiserver_registry::Registry;
use futures::future::BoxFuture;
use std::sync::Arc;

pub(crate) struct Measure {
    metrics: Arc<Metrics>,
    registry: Registry,
}

impl Measure {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self {
            metrics: Arc::clone(&core.metrics),
            registry: core.registry.clone(),
        }
    }
}

fn is_served(registry: &Registry, info: &RequestInfo) -> bool {
    let find = || {
        let store = registry.store(&info.api_group, &info.api_version, &info.resource)?;
        (info.subresource.is_empty() || store.row.subresource(&info.subresource).is_some()).then_some(())
    };
    info.is_resource_request && find().is_some()
}

impl Filter for Measure {
    fn call(&self, mut exchange: Exchange, next: Next) -> BoxFuture<'static, Response> {
        let completion = Completion::default();
        exchange.request.extensions_mut().insert(completion.clone());
        let long_running = exchange.is_long_running();
        self.record(&exchange, &completion);
        let audit_id = Arc::clone(&exchange.context.audit_id);
        Box::pin(async move {
            let mut response = next.run(exchange).await;
            completion.ended(Outcome::Answered(response.status().as_u16()));
            if let Ok(value) = http::HeaderValue::from_str(&audit_id) {
                response.headers_mut().insert("audit-id", value);
            }
            if long_running {
                // A stream ends with its body.
                return response.map(|body| body.holding(completion));
            }
            response
        })
    }
}

impl Measure {
    fn record(&self, exchange: &Exchange, completion: &Completion) {
        let (metrics, registry) = (Arc::clone(&self.metrics), self.registry.clone());
        let info = Arc::clone(&exchange.info);
        let long_running = exchange.is_long_running();
        let query = exchange.request.uri().query().unwrap_or_default();
        let dry_run = query.contains("dryRun=All");
        let (runtime, audit_id) = (
            exchange.context.runtime.clone(),
            Arc::clone(&exchange.context.audit_id),
        );
        let started = runtime.monotonic();
        completion.observe(move |outcome| {
            let seconds = runtime.monotonic().saturating_sub(started).as_secs_f64();
            let code = outcome.code();
            let labels = RequestLabels {
                info: &info,
                dry_run,
                code,
                long_running,
                served: is_served(&registry, &info),
            };
            metrics.observe(&labels, seconds);
            if outcome == Outcome::Abandoned {
                metrics.aborted(&labels);
            }
            tracing::debug!(request = %info, code, seconds, %audit_id, "answered");
        });
    }
}
