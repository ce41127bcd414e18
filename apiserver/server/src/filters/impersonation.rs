//! The `Impersonate-*` headers, when the user may use them.

use super::audit::AuditEvent;
use super::authorization::with_attributes;
use super::deadline;
use super::filter::{Filter, Next};
use super::{forbid, refuse_request};
use crate::exchange::{RequestExchange, Response};
use crate::metrics::Metrics;
use crate::state::ServerState;
use apiserver_auth::authz::AuthorizerChain;
use apiserver_auth::impersonation::{self, ImpersonationError, strip};
use apiserver_registry::RegistryError;
use apiserver_registry::latency::LatencyPart;
use futures::future::BoxFuture;
use std::sync::Arc;

pub(crate) struct Impersonation {
    authorizers: AuthorizerChain,
    modes: Arc<impersonation::Impersonation>,
    metrics: Arc<Metrics>,
}

impl Impersonation {
    pub(crate) fn new(core: &Arc<ServerState>) -> Self {
        Self {
            authorizers: core.authorizers.clone(),
            modes: Arc::default(),
            metrics: Arc::clone(&core.metrics),
        }
    }
}

impl Filter for Impersonation {
    fn call(&self, mut exchange: RequestExchange, next: Next) -> BoxFuture<'static, Response> {
        let requested = exchange
            .request
            .headers()
            .keys()
            .any(|name| name.as_str().starts_with("impersonate-"));
        if !requested {
            return next.run(exchange);
        }
        let (authorizers, modes) = (self.authorizers.clone(), Arc::clone(&self.modes));
        let metrics = Arc::clone(&self.metrics);
        Box::pin(async move {
            let runtime = &exchange.context.runtime;
            let begun = runtime.monotonic();
            let headers = exchange.request.headers();
            let found = with_attributes(&exchange, async |attributes| {
                modes.impersonate(attributes, headers, &authorizers).await
            });
            let found = deadline::before(exchange.context.deadline, runtime, found).await;
            let took = runtime.monotonic().saturating_sub(begun);
            exchange.context.latency.add(LatencyPart::Impersonation, took);
            let found = match found {
                Ok(found) => found,
                Err(error) => return refuse_request(&exchange, &error),
            };
            match found {
                Ok(found) => {
                    if let Some(found) = found {
                        metrics.impersonated(Ok(found.constraint));
                        let user = Arc::new(found.user);
                        if let Some(event) = AuditEvent::of(&exchange) {
                            event.impersonated(&user, found.constraint);
                        }
                        exchange.context.user = user;
                    }
                    strip(exchange.request.headers_mut());
                    next.run(exchange).await
                }
                Err(error) => {
                    if matches!(error, ImpersonationError::Forbidden(_)) {
                        metrics.impersonated(Err(()));
                    }
                    refusal(&exchange, &error)
                }
            }
        })
    }
}

fn refusal(exchange: &RequestExchange, error: &ImpersonationError) -> Response {
    let bad = RegistryError::BadRequest(error.to_string());
    match error {
        ImpersonationError::Forbidden(forbidden) => {
            let detail = forbidden.detail.clone();
            let error = RegistryError::forbidden(&forbidden.resource, &forbidden.name, detail);
            forbid(exchange, &error)
        }
        ImpersonationError::Busy(_) => refuse_request(exchange, &RegistryError::busy()),
        ImpersonationError::WithoutUser(_) => forbid(exchange, &bad),
        ImpersonationError::TooMany | ImpersonationError::NotText => refuse_request(exchange, &bad),
    }
}
