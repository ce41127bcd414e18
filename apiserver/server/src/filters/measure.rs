//! Follows requests to their ends, whatever becomes of their clients, and names them in the answers.

use super::completion::{Completion, Outcome};
use super::filter::{Filter, Next};
use crate::exchange::{RequestExchange, Response};
use futures::future::BoxFuture;
use std::sync::Arc;

pub(crate) struct Measure;

impl Filter for Measure {
    fn call(&self, mut exchange: RequestExchange, next: Next) -> BoxFuture<'static, Response> {
        let completion = Completion::begun(exchange.context.runtime.monotonic());
        exchange.request.extensions_mut().insert(completion.clone());
        let long_running = exchange.is_long_running();
        log_end(&exchange, &completion);
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

fn log_end(exchange: &RequestExchange, completion: &Completion) {
    let info = Arc::clone(&exchange.info);
    let audit_id = Arc::clone(&exchange.context.audit_id);
    let (runtime, begun) = (exchange.context.runtime.clone(), completion.begun_at());
    completion.observe(move |outcome| {
        let seconds = runtime.monotonic().saturating_sub(begun).as_secs_f64();
        tracing::debug!(request = %info, code = outcome.code(), seconds, %audit_id, "answered");
    });
}
