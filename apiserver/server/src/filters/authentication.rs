//! Authentication of requests; none goes on without an identity.

use super::audit::auditor::Auditor;
use super::filter::{Filter, Next};
use super::{refuse_request, too_many_after};
use crate::accepted_credentials::AcceptedCredentials;
use crate::exchange::{RequestExchange, Response};
use crate::metrics::{Identified, Metrics};
use crate::state::ServerState;
use apiserver_auth::authn::{
    AuthenticationNotes, AuthenticatorChain, Credentials, FrontProxyHeaders, Refusal, forget_credentials,
    have_expired, is_anonymous,
};
use apiserver_endpoints::ApiError;
use apiserver_registry::latency::LatencyPart;
use futures::future::BoxFuture;
use machinery_meta::UserInfo;
use machinery_runtime::client_of;
use std::sync::Arc;

pub(crate) struct Authentication {
    authenticators: AuthenticatorChain,
    metrics: Arc<Metrics>,
    auditor: Option<Arc<Auditor>>,
    of_proxies: Arc<FrontProxyHeaders>,
    accepted: Arc<AcceptedCredentials>,
}

impl Authentication {
    pub(crate) fn new(core: &Arc<ServerState>) -> Self {
        Self {
            authenticators: core.authenticators.clone(),
            metrics: Arc::clone(&core.metrics),
            auditor: core.audit.clone(),
            of_proxies: Arc::new(core.trust.proxies.headers().clone()),
            accepted: Arc::default(),
        }
    }
}

async fn identify(
    authenticators: &AuthenticatorChain,
    exchange: &RequestExchange,
) -> Result<Arc<UserInfo>, Refusal> {
    if let Some(identity) = &exchange.peer.identity {
        return Ok(Arc::clone(identity));
    }
    let found = authenticators.authenticate(&credentials(exchange)).await?;
    note(exchange, found.remarks);
    Ok(Arc::new(found.user))
}

fn credentials(exchange: &RequestExchange) -> Credentials<'_> {
    Credentials {
        peer: exchange.peer.certificate.as_deref(),
        headers: exchange.request.headers(),
        path: &exchange.info.path,
        client: exchange.peer.address.map(|address| client_of(address.ip())),
        now: exchange.context.runtime.now(),
    }
}

fn unauthorized(exchange: &RequestExchange) -> Response {
    let error = ApiError::Unauthorized("Unauthorized".to_owned());
    last_of_connection(exchange.request.version(), refuse_request(exchange, &error))
}

/// Marks an answer to an unknown client as its connection's last one where that is HTTP/2: attackers use many streams of one
/// (upstream's `UnauthenticatedHTTP2DOSMitigation`).
fn last_of_connection(protocol: http::Version, mut answer: Response) -> Response {
    if protocol == http::Version::HTTP_2 {
        let close = http::HeaderValue::from_static("close");
        answer.headers_mut().insert(http::header::CONNECTION, close);
    }
    answer
}

/// The answer about credentials that are not looked at, since the address has used up its share or too many others' are:
/// those that are over by their own word are refused, others are to come again (decision 0055).
fn unchecked(exchange: &RequestExchange) -> Response {
    match have_expired(&credentials(exchange)) {
        true => unauthorized(exchange),
        false => too_many_after(1),
    }
}

fn refused(exchange: &RequestExchange, refusal: &Refusal) -> Response {
    match refusal.is_unchecked {
        true => unchecked(exchange),
        false => unauthorized(exchange),
    }
}

/// Hands remarks on credentials to the audit log and to the client.
fn note(exchange: &RequestExchange, remarks: AuthenticationNotes) {
    for (name, value) in remarks.annotations {
        exchange.context.audit.add(name, value);
    }
    for warning in remarks.warnings {
        exchange.context.warnings.add(warning);
    }
}

impl Filter for Authentication {
    fn call(&self, mut exchange: RequestExchange, next: Next) -> BoxFuture<'static, Response> {
        let (authenticators, metrics) = (self.authenticators.clone(), Arc::clone(&self.metrics));
        let (auditor, of_proxies) = (self.auditor.clone(), Arc::clone(&self.of_proxies));
        let Some(attempt) = self.accepted.begin(&exchange) else {
            return Box::pin(std::future::ready(unchecked(&exchange)));
        };
        Box::pin(async move {
            let runtime = exchange.context.runtime.clone();
            let begun = runtime.monotonic();
            let identified = identify(&authenticators, &exchange).await;
            let took = runtime.monotonic().saturating_sub(begun);
            exchange.context.latency.add(LatencyPart::Authentication, took);
            match identified {
                Ok(user) => {
                    let is_anonymous = is_anonymous(&user);
                    attempt.ended(Ok(&user));
                    metrics.access.identified(Identified::User(&user.name), took);
                    if let Some(connection) = &exchange.peer.connection {
                        connection.authenticated(&user);
                    }
                    exchange.context.user = user;
                    forget_credentials(exchange.request.headers_mut(), &of_proxies);
                    let protocol = exchange.request.version();
                    let answer = next.run(exchange).await;
                    match is_anonymous {
                        true => last_of_connection(protocol, answer),
                        false => answer,
                    }
                }
                Err(refusal) => {
                    attempt.ended(Err(&refusal));
                    let outcome = match refusal.is_without_credentials() {
                        true => Identified::Nobody,
                        false => Identified::Refused,
                    };
                    metrics.access.identified(outcome, took);
                    tracing::info!(reason = %refusal, request = %exchange.info, "unable to authenticate the request");
                    let response = refused(&exchange, &refusal);
                    note(&exchange, refusal.remarks);
                    if let Some(auditor) = &auditor {
                        auditor.refused_early(&exchange, &response).await;
                    }
                    response
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::Peer;
    use apiserver_endpoints::{Body, RequestInfo};
    use apiserver_registry::RequestContext;
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use http::StatusCode;
    use machinery_runtime::Simulation;

    /// The answer to a token that ends so many seconds from now.
    fn answered(ends_in: i64, refusal: &Refusal) -> StatusCode {
        let runtime = Simulation::new(1).runtime();
        let ends = runtime.now().as_second() + ends_in;
        let claims = URL_SAFE_NO_PAD.encode(format!(r#"{{"exp": {ends}}}"#));
        let head = URL_SAFE_NO_PAD.encode(r#"{"alg": "ES256"}"#);
        let token = format!("Bearer {head}.{claims}.{}", URL_SAFE_NO_PAD.encode("signature"));
        let request = http::Request::get("/api").header(http::header::AUTHORIZATION, token);
        let request = request.body(Body::empty()).unwrap();
        let exchange = RequestExchange {
            info: Arc::new(RequestInfo::parse(request.method(), request.uri()).unwrap()),
            context: RequestContext::internal(UserInfo::anonymous(), runtime),
            peer: Peer::default(),
            request,
            delegate: None,
        };
        refused(&exchange, refusal).status()
    }

    /// Clients renew their credentials after 401 alone, and come again with the same ones after 429 alone.
    #[test]
    fn refusal_without_a_look_is_401_only_where_it_is_over_by_its_own_word() {
        let unchecked = Refusal::unchecked("too many");
        assert_eq!(answered(3_600, &unchecked), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answered(-3_600, &unchecked), StatusCode::UNAUTHORIZED);
        assert_eq!(answered(3_600, &Refusal::new("bad")), StatusCode::UNAUTHORIZED);
    }
}
