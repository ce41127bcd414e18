//! Audit: an event for every request that the policy names, at each of its stages.
//!
//! [`RequestReceived`](policy::Stage) is written before anything else happens and waits while the log is behind. The last
//! event is written by the request's [`Completion`], whatever its client does meanwhile; a mutation without its client
//! tells what became of it. Long-running requests have an event for their beginning too.

mod event;
mod log;
mod objects;
mod policy;

pub(crate) use event::AuditEvent;
pub use log::AuditLogConfig;
pub use policy::PolicyError;

use super::completion::Completion;
use crate::exchange::{Exchange, Response};
use crate::handler_chain::{Filter, Next};
use crate::server::Core;
use apiserver_endpoints::Body;
use event::ResponseStatus;
use futures::future::BoxFuture;
use http::header::{ACCEPT_ENCODING, AUTHORIZATION};
use http_body::Body as _;
use log::AuditLog;
use machinery_runtime::Runtime;
use policy::{Level, Policy, Stage};
use prometheus::IntCounterVec;
use std::sync::Arc;

/// How much of an answer is read for its event: a list is as large as its objects are.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Policy and log.
#[derive(Debug)]
pub(crate) struct Auditor {
    policy: Policy,
    log: AuditLog,
}

impl Auditor {
    /// Without a policy file everything is told at level `Metadata`.
    pub(crate) fn open(
        log: AuditLogConfig,
        policy: Option<&[u8]>,
        runtime: &Runtime,
        errors: IntCounterVec,
    ) -> Result<Self, PolicyError> {
        Ok(Self {
            policy: policy.map_or_else(|| Ok(Policy::metadata()), Policy::parse)?,
            log: AuditLog::open(log, runtime, errors)?,
        })
    }

    /// Resolves when all events so far are written.
    pub(crate) async fn flush(&self) {
        self.log.flush().await;
    }

    /// The event of a request that presented credentials which nobody knows. `None` where it is not audited.
    pub(crate) async fn unauthenticated(self: &Arc<Self>, exchange: &Exchange) {
        let decision = self.policy.decide(None, &exchange.info);
        if decision.level == Level::None {
            return;
        }
        self.log.room().await;
        let event = AuditEvent::new(self, decision, exchange);
        event.response_status(ResponseStatus::failure(401, "Unauthorized", &attempts(exchange)));
        event.write(Stage::ResponseStarted);
    }
}

/// Which ways to authenticate a request has tried, in upstream's words.
fn attempts(exchange: &Exchange) -> String {
    let scheme = exchange.request.headers().get(AUTHORIZATION);
    let scheme = scheme.and_then(|value| value.to_str().ok()?.split_once(' '));
    let scheme = scheme.map(|(scheme, _)| scheme.to_ascii_lowercase());
    let mut tried: Vec<&str> = scheme
        .as_deref()
        .filter(|scheme| ["basic", "bearer"].contains(scheme))
        .into_iter()
        .collect();
    if exchange.peer.certificate.is_some() {
        tried.push("x509");
    }
    if tried.is_empty() {
        return "Authentication failed, no credentials provided".to_owned();
    }
    format!("Authentication failed, attempted: {}", tried.join(", "))
}

pub(crate) struct Audit(Option<Arc<Auditor>>);

impl Audit {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self(core.audit.clone())
    }
}

impl Filter for Audit {
    fn call(&self, mut exchange: Exchange, next: Next) -> BoxFuture<'static, Response> {
        let Some(auditor) = self.0.clone() else {
            return next.run(exchange);
        };
        let decision = auditor
            .policy
            .decide(Some(&exchange.context.user), &exchange.info);
        if decision.level == Level::None {
            return next.run(exchange);
        }
        Box::pin(async move {
            auditor.log.room().await;
            let event = AuditEvent::new(&auditor, decision, &exchange);
            event.write(Stage::RequestReceived);
            if let Some(completion) = Completion::of(&exchange) {
                let last = event.clone();
                completion.observe(move |outcome| last.ended(outcome));
            }
            exchange.request.extensions_mut().insert(event.clone());
            if event.wants_response() {
                // What is to be recorded must be readable.
                exchange.request.headers_mut().remove(ACCEPT_ENCODING);
            }
            let long_running = exchange.is_long_running();
            let response = next.run(exchange).await;
            let status = ResponseStatus::of_code(response.status().as_u16());
            event.response_status(status);
            if long_running {
                event.write(Stage::ResponseStarted);
                return response;
            }
            told(&event, response).await
        })
    }
}

/// Records what the answer says: of a failure its `Status`, and all of it where the policy wants that.
async fn told(event: &AuditEvent, response: Response) -> Response {
    let failed = response.status().is_client_error() || response.status().is_server_error();
    if !event.wants_response() && !failed {
        return response;
    }
    let is_readable = response
        .body()
        .size_hint()
        .upper()
        .is_some_and(|bytes| bytes <= MAX_ANSWER_BYTES as u64);
    if !is_readable {
        event.annotate("audit.k8s.io/truncated", "true");
        return response;
    }
    let (parts, mut body) = response.into_parts();
    let Ok(bytes) = body.read_while(MAX_ANSWER_BYTES, |_| true).await else {
        return Response::from_parts(parts, body);
    };
    if failed && let Ok(status) = serde_json::from_slice(&bytes) {
        event.response_status(status);
    }
    if event.wants_response() {
        event.response_body(&parts.headers, &bytes);
    }
    // What the body held (its memory's permit) it holds on.
    Response::from_parts(parts, Body::from(bytes).holding(body))
}
