//! The paths the server answers itself, and those that API extensions answer; everything else is the endpoints'.

use crate::backup;
use crate::debug_pages;
use crate::exchange::{RequestExchange, Response};
use crate::filters::refuse_request;
use crate::flow_control::dump;
use crate::health;
use crate::state::ServerState;
use apiserver_endpoints::Body;
use apiserver_registry::RegistryError;
use futures::future::BoxFuture;
use http::HeaderValue;
use std::sync::Arc;

impl ServerState {
    /// Answers a request behind all filters. Health and metrics answer whatever the method, as upstream's.
    pub(crate) fn answer(self: &Arc<Self>, exchange: RequestExchange) -> BoxFuture<'static, Response> {
        if let Some(own) = exchange.delegate.clone() {
            let aggregation = Arc::clone(&self.aggregation);
            return Box::pin(async move { aggregation.answered(&own, exchange).await });
        }
        if exchange.info.is_resource_request {
            return self.endpoints.handle(
                exchange.context,
                Arc::unwrap_or_clone(exchange.info),
                exchange.request,
            );
        }
        let core = Arc::clone(self);
        Box::pin(async move {
            if let Some(response) = core.own(&exchange).await {
                return response;
            }
            core.endpoints
                .handle(
                    exchange.context,
                    Arc::unwrap_or_clone(exchange.info),
                    exchange.request,
                )
                .await
        })
    }

    async fn own(&self, exchange: &RequestExchange) -> Option<Response> {
        let path = exchange.info.path.as_str();
        if path == "/metrics" && *exchange.request.method() == http::Method::DELETE {
            self.metrics.reset();
            let form = HeaderValue::from_static("text/plain; charset=utf-8");
            let mut response = Response::new(Body::from("metrics reset\n"));
            response.headers_mut().insert(http::header::CONTENT_TYPE, form);
            return Some(response);
        }
        let metrics = match path {
            "/metrics" => Some(self.metrics.render()),
            "/metrics/slis" => Some(self.metrics.health_checks.render()),
            _ => None,
        };
        if let Some(text) = metrics {
            let mut response = Response::new(Body::from(text));
            let form = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            response.headers_mut().insert(http::header::CONTENT_TYPE, form);
            return Some(response);
        }
        let headers = exchange.request.headers();
        if let Some(page) = debug_pages::answer(self, path, headers) {
            return Some(page.unwrap_or_else(|error| refuse_request(exchange, &error)));
        }
        let query = exchange.request.uri().query().unwrap_or_default();
        if let Some(control) = &self.flow_control
            && let Some(text) = dump::answer(control, path, query, self.runtime.now())
        {
            let mut response = Response::new(Body::from(text));
            let form = HeaderValue::from_static("text/plain; charset=utf-8");
            response.headers_mut().insert(http::header::CONTENT_TYPE, form);
            return Some(response);
        }
        if path == backup::PATH {
            return Some(backup::answer(self, exchange));
        }
        if let Some(response) = self.openid.answer(path) {
            let is_read = *exchange.request.method() == http::Method::GET;
            let refused = || refuse_request(exchange, &RegistryError::MethodNotAllowed);
            return Some(if is_read { response } else { refused() });
        }
        health::answer(self, path, query).await
    }
}
