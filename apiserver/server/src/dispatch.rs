//! The paths the server answers itself, and those that API extensions answer; everything else is the endpoints'.

use crate::backup;
use crate::debug_pages;
use crate::exchange::{RequestExchange, Response};
use crate::filters::refuse_request;
use crate::flow_control::dump;
use crate::health;
use crate::state::ServerState;
use apiserver_endpoints::{ApiError, Body, Query};
use apiserver_registry::RegistryError;
use futures::future::BoxFuture;
use http::HeaderValue;
use http::header::ACCEPT_ENCODING;
use machinery_meta::{FieldError, FieldPath};
use std::sync::Arc;

const SEND_INITIAL_EVENTS: &str = "sendInitialEvents";

impl ServerState {
    /// Answers a request behind all filters. Health and metrics answer whatever the method, as upstream's.
    pub(crate) fn answer(self: &Arc<Self>, mut exchange: RequestExchange) -> BoxFuture<'static, Response> {
        if let Some(own) = exchange.delegate.clone() {
            let aggregation = Arc::clone(&self.aggregation);
            return Box::pin(async move { aggregation.answered(&own, exchange).await });
        }
        if let Some(refused) = self.gated(&mut exchange) {
            return Box::pin(std::future::ready(refused));
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

    /// Applies feature gates that are off to a request; the answer, where one refuses it.
    fn gated(&self, exchange: &mut RequestExchange) -> Option<Response> {
        let gates = &self.config.feature_gates;
        if !gates.is_enabled("APIResponseCompression") {
            exchange.request.headers_mut().remove(ACCEPT_ENCODING);
        }
        let requests_initial_events = exchange.info.verb == "watch"
            && Query::of(exchange.request.uri())
                .get(SEND_INITIAL_EVENTS)
                .is_some();
        if !requests_initial_events || gates.is_enabled("WatchList") {
            return None;
        }
        let detail = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
        let problem = FieldError::forbidden(&FieldPath::new(SEND_INITIAL_EVENTS), detail);
        let refused = RegistryError::invalid_options("ListOptions", vec![problem]);
        Some(refuse_request(exchange, &refused))
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
            let refused = || refuse_request(exchange, &ApiError::MethodNotAllowed);
            return Some(if is_read { response } else { refused() });
        }
        health::answer(self, path, query).await
    }
}
