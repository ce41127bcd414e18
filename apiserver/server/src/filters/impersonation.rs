//! The `Impersonate-*` headers, when the user may use them.

use super::audit::AuditEvent;
use super::{forbid, refuse_request};
use crate::exchange::{Exchange, Response};
use crate::handler_chain::{Filter, Next};
use crate::server::Core;
use apiserver_auth::authz::AuthorizerChain;
use apiserver_auth::impersonation::{ImpersonationError, impersonate, strip};
use apiserver_registry::RegistryError;
use futures::future::BoxFuture;
use std::sync::Arc;

pub(crate) struct Impersonation(AuthorizerChain);

impl Impersonation {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self(core.authorizers.clone())
    }
}

impl Filter for Impersonation {
    fn call(&self, mut exchange: Exchange, next: Next) -> BoxFuture<'static, Response> {
        let asked = exchange
            .request
            .headers()
            .keys()
            .any(|name| name.as_str().starts_with("impersonate-"));
        if !asked {
            return next.run(exchange);
        }
        let authorizers = self.0.clone();
        Box::pin(async move {
            match impersonate(&exchange.context.user, exchange.request.headers(), &authorizers).await {
                Ok(user) => {
                    if let Some(user) = user {
                        let user = Arc::new(user);
                        if let Some(event) = AuditEvent::of(&exchange) {
                            event.impersonated(&user);
                        }
                        exchange.context.user = user;
                    }
                    strip(exchange.request.headers_mut());
                    next.run(exchange).await
                }
                Err(ImpersonationError::Forbidden(forbidden)) => {
                    let detail = forbidden.detail.clone();
                    forbid(
                        exchange.request.headers(),
                        &RegistryError::forbidden(&forbidden.resource, &forbidden.name, detail),
                    )
                }
                Err(ImpersonationError::TooMany) => refuse_request(
                    exchange.request.headers(),
                    &RegistryError::BadRequest("too many impersonation headers".to_owned()),
                ),
                Err(error @ ImpersonationError::WithoutUser(_)) => forbid(
                    exchange.request.headers(),
                    &RegistryError::BadRequest(error.to_string()),
                ),
            }
        })
    }
}
