//! Counts and times requests, under upstream's metric names.

use crate::exchange::{Exchange, Response};
use crate::handler_chain::{Filter, Next};
use crate::metrics::{Metrics, RequestLabels};
use crate::server::Core;
use futures::future::BoxFuture;
use std::sync::Arc;

pub(crate) struct Measure(Arc<Metrics>);

impl Measure {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self(Arc::clone(&core.metrics))
    }
}

impl Filter for Measure {
    fn call(&self, exchange: Exchange, next: Next) -> BoxFuture<'static, Response> {
        let metrics = Arc::clone(&self.0);
        Box::pin(async move {
            let runtime = exchange.context.runtime.clone();
            let (info, long_running) = (Arc::clone(&exchange.info), exchange.is_long_running());
            let dry_run = exchange
                .request
                .uri()
                .query()
                .is_some_and(|query| query.contains("dryRun=All"));
            let audit_id = Arc::clone(&exchange.context.audit_id);
            let started = runtime.monotonic();
            let mut response = next.run(exchange).await;
            let seconds = runtime.monotonic().saturating_sub(started).as_secs_f64();
            let code = response.status().as_u16();
            metrics.observe(
                &RequestLabels {
                    info: &info,
                    dry_run,
                    code,
                    long_running,
                },
                seconds,
            );
            tracing::debug!(request = %info, code, seconds, %audit_id, "answered");
            if let Ok(value) = http::HeaderValue::from_str(&audit_id) {
                response.headers_mut().insert("audit-id", value);
            }
            response
        })
    }
}
