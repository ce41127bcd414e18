//! Who asks; nobody gets further without an identity.

use super::audit::Auditor;
use super::refuse_request;
use crate::exchange::{Exchange, Response};
use crate::handler_chain::{Filter, Next};
use crate::metrics::Metrics;
use crate::server::Core;
use apiserver_auth::authn::{AuthenticatorChain, Credentials, Refusal, forget_credentials};
use apiserver_registry::RegistryError;
use futures::future::BoxFuture;
use machinery_meta::UserInfo;
use std::sync::Arc;

pub(crate) struct Authentication {
    authenticators: AuthenticatorChain,
    metrics: Arc<Metrics>,
    auditor: Option<Arc<Auditor>>,
}

impl Authentication {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self {
            authenticators: core.authenticators.clone(),
            metrics: Arc::clone(&core.metrics),
            auditor: core.audit.clone(),
        }
    }
}

async fn identify(
    authenticators: &AuthenticatorChain,
    exchange: &Exchange,
) -> Result<Arc<UserInfo>, Refusal> {
    if let Some(identity) = &exchange.peer.identity {
        return Ok(Arc::clone(identity));
    }
    let credentials = Credentials {
        peer: exchange.peer.certificate.as_deref(),
        headers: exchange.request.headers(),
        path: &exchange.info.path,
        now: exchange.context.runtime.now(),
    };
    authenticators
        .authenticate(&credentials)
        .await
        .map(|found| Arc::new(found.user))
}

impl Filter for Authentication {
    fn call(&self, mut exchange: Exchange, next: Next) -> BoxFuture<'static, Response> {
        let (authenticators, metrics) = (self.authenticators.clone(), Arc::clone(&self.metrics));
        let auditor = self.auditor.clone();
        Box::pin(async move {
            match identify(&authenticators, &exchange).await {
                Ok(user) => {
                    metrics.authenticated(true);
                    if let Some(connection) = &exchange.peer.connection {
                        connection.authenticated(&user);
                    }
                    exchange.context.user = user;
                    forget_credentials(exchange.request.headers_mut());
                    next.run(exchange).await
                }
                Err(refusal) => {
                    metrics.authenticated(false);
                    tracing::info!(reason = %refusal, request = %exchange.info, "unable to authenticate the request");
                    if let Some(auditor) = &auditor {
                        auditor.unauthenticated(&exchange).await;
                    }
                    refuse_request(
                        exchange.request.headers(),
                        &RegistryError::Unauthorized("Unauthorized".to_owned()),
                    )
                }
            }
        })
    }
}
