//! Audit: an event for every request that the policy names, at each of its stages.
//!
//! [`RequestReceived`](policy::Stage) is written before anything else happens and waits while the log is behind. Handlers
//! record the objects they decode from bodies, answers carry their `Status` beside the bytes. The last event is written by
//! the request's [`Completion`], whatever its client does meanwhile; a mutation without its client records its outcome.
//! An answer leaves after its last event is written ([`BeforeAnswer`]). Long-running requests have an event for their
//! beginning, before which their answer does not begin, and one for their end.
//!
//! Events go to the back ends that are configured: the [`log`], the [`webhook`], or both.

pub(crate) mod auditor;
pub(crate) mod backend;
mod client;
mod event;
mod form;
mod latency;
pub(crate) mod log;
mod objects;
pub(crate) mod policy;
pub(crate) mod truncate;
pub(crate) mod webhook;

pub(crate) use event::AuditEvent;

use super::completion::Completion;
use super::filter::{Filter, Next};
use crate::exchange::{RequestExchange, Response};
use crate::state::ServerState;
use apiserver_endpoints::Body;
use auditor::{Auditor, LastLine};
use futures::future::BoxFuture;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, StatusCode};
use http_body::Body as _;
use latency::Latency;
use policy::{Level, Stage};
use std::sync::Arc;

/// Bytes of an answer that are read for its event: a list is as large as its objects are.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Lets an answer leave once the last event of its request is written: a server that is killed has recorded what it
/// answered. A mutation that goes on after its answer is recorded later.
pub(crate) struct BeforeAnswer {
    is_audited: bool,
}

impl BeforeAnswer {
    pub(crate) fn new(core: &Arc<ServerState>) -> Self {
        Self {
            is_audited: core.audit.is_some(),
        }
    }
}

impl Filter for BeforeAnswer {
    fn call(&self, mut exchange: RequestExchange, next: Next) -> BoxFuture<'static, Response> {
        if !self.is_audited {
            return next.run(exchange);
        }
        let last = LastLine::default();
        exchange.request.extensions_mut().insert(last.clone());
        Box::pin(async move {
            let response = next.run(exchange).await;
            let written = last.take();
            if let Some(written) = written {
                written.done().await;
            }
            response
        })
    }
}

pub(crate) struct Audit(Option<Arc<Auditor>>);

impl Audit {
    pub(crate) fn new(core: &Arc<ServerState>) -> Self {
        Self(core.audit.clone())
    }
}

impl Filter for Audit {
    fn call(&self, mut exchange: RequestExchange, next: Next) -> BoxFuture<'static, Response> {
        let Some(auditor) = self.0.clone() else {
            return next.run(exchange);
        };
        let decision = auditor.decide(Some(&exchange.context.user), &exchange);
        if decision.level == Level::None {
            return next.run(exchange);
        }
        Box::pin(async move {
            auditor.wait_for_capacity().await;
            let event = AuditEvent::new(&auditor, decision, &exchange);
            if !event.write(Stage::RequestReceived).await {
                auditor.metrics.rejected();
                return not_stored(&exchange);
            }
            if let Some(completion) = Completion::of(&exchange) {
                let last = event.clone();
                let latency = Latency::of(&completion, &exchange.context);
                completion.observe(move |outcome| last.ended(outcome, &latency));
            }
            exchange.request.extensions_mut().insert(event.clone());
            exchange.context.recorder = Some(event.recorder());
            let reads_answer = event.wants_response() && answers_with_object(&exchange);
            if reads_answer {
                // What is to be recorded must be readable.
                exchange.request.headers_mut().remove(ACCEPT_ENCODING);
            }
            let long_running = exchange.is_long_running();
            let response = next.run(exchange).await;
            let is_complete = event.answered(&response);
            if long_running {
                event.write(Stage::ResponseStarted).await;
                return response;
            }
            if is_complete || !reads_answer {
                return response;
            }
            read_answer(&event, response).await
        })
    }
}

/// Upstream's refusal in the mode `blocking-strict`.
fn not_stored(exchange: &RequestExchange) -> Response {
    let uri = exchange.request.uri().path_and_query();
    let uri = uri.map_or("/", |uri| uri.as_str()).replace('&', "&amp;");
    let text = format!("Internal Server Error: {uri:?}: failed to store audit event\n");
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Reports whether the answer is an object: other paths serve texts and documents.
fn answers_with_object(exchange: &RequestExchange) -> bool {
    // An extension records its own, as upstream's do.
    if exchange.delegate.is_some() {
        return false;
    }
    let info = &exchange.info;
    let is_discovery = ["/api", "/apis"].iter().any(|root| {
        let rest = info.path.strip_prefix(root);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    info.is_resource_request || is_discovery
}

/// Records the object that an answer is.
async fn read_answer(event: &AuditEvent, response: Response) -> Response {
    let is_readable = response
        .body()
        .size_hint()
        .upper()
        .is_some_and(|bytes| bytes <= MAX_ANSWER_BYTES as u64);
    if !is_readable {
        event.truncated();
        return response;
    }
    let (parts, mut body) = response.into_parts();
    let Ok(bytes) = body.read_while(MAX_ANSWER_BYTES, |_| true).await else {
        return Response::from_parts(parts, body);
    };
    event.response_body(&parts.headers, &bytes).await;
    // What the body held (its memory's permit) it holds on.
    Response::from_parts(parts, Body::from(bytes).holding(body))
}
