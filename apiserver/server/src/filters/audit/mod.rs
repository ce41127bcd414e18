//! Audit: an event for every request that the policy names, at each of its stages.
//!
//! [`RequestReceived`](policy::Stage) is written before anything else happens and waits while the log is behind. Handlers
//! record the objects they decode from bodies, answers carry their `Status` beside the bytes. The last event is written by
//! the request's [`Completion`], whatever its client does meanwhile; a mutation without its client tells what became of it.
//! An answer leaves after its last event is written ([`BeforeAnswer`]). Long-running requests have an event for their
//! beginning, before which their answer does not begin, and one for their end.

mod client;
mod event;
mod form;
mod latency;
mod log;
mod objects;
mod policy;

pub(crate) use event::AuditEvent;
pub(crate) use latency::go_text;
pub use log::{AuditLogConfig, AuditLogMode};
pub use policy::PolicyError;

use super::completion::Completion;
use crate::exchange::{Exchange, Response};
use crate::handler_chain::{Filter, Next};
use crate::metrics::AuditMetrics;
use crate::server::Core;
use apiserver_endpoints::Body;
use futures::future::BoxFuture;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, StatusCode};
use http_body::Body as _;
use latency::Latency;
use log::{AuditLog, Written};
use machinery_meta::UserInfo;
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use policy::{Decision, Level, Policy, Stage};
use std::sync::Arc;

/// How much of an answer is read for its event: a list is as large as its objects are.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Policy and log.
#[derive(Debug)]
pub(crate) struct Auditor {
    policy: Policy,
    log: AuditLog,
    metrics: AuditMetrics,
}

impl Auditor {
    /// Without a policy file everything is told at level `Metadata`.
    pub(crate) fn open(
        log: AuditLogConfig,
        policy: Option<&[u8]>,
        runtime: &Runtime,
        metrics: AuditMetrics,
    ) -> Result<Self, PolicyError> {
        Ok(Self {
            policy: policy.map_or_else(|| Ok(Policy::metadata()), Policy::parse)?,
            log: AuditLog::open(log, runtime, metrics.errors())?,
            metrics,
        })
    }

    /// Resolves when all events so far are written.
    pub(crate) async fn flush(&self) {
        self.log.flush().await;
    }

    /// Reports whether events can be written, as far as is known.
    pub(crate) fn is_written(&self) -> bool {
        self.log.is_written()
    }

    /// The event of a request that is refused before its user is known, written with its answer. Nothing is written where
    /// the policy says so.
    pub(crate) async fn refused_early(self: &Arc<Self>, exchange: &Exchange, answer: &Response) {
        let decision = self.decide(None, exchange);
        if decision.level == Level::None {
            return;
        }
        self.log.room().await;
        let event = AuditEvent::new(self, decision, exchange);
        event.answered(answer);
        event.write(Stage::ResponseStarted).await;
    }

    fn decide(&self, user: Option<&UserInfo>, exchange: &Exchange) -> Decision {
        let decision = self.policy.decide(user, &exchange.info);
        self.metrics.decided(decision.level.as_str());
        decision
    }

    fn write(&self, line: String) -> Written {
        self.metrics.written();
        self.log.write(line)
    }
}

/// The last event of a request on its way to the file.
#[derive(Debug, Clone, Default)]
struct LastLine(Arc<Mutex<Option<Written>>>);

impl LastLine {
    fn set(&self, written: Written) {
        *self.0.lock() = Some(written);
    }

    fn take(&self) -> Option<Written> {
        self.0.lock().take()
    }
}

/// Lets an answer leave once the last event of its request is written: a server that is killed has recorded what it
/// answered. A mutation that goes on after its answer is recorded later.
pub(crate) struct BeforeAnswer {
    is_audited: bool,
}

impl BeforeAnswer {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self {
            is_audited: core.audit.is_some(),
        }
    }
}

impl Filter for BeforeAnswer {
    fn call(&self, mut exchange: Exchange, next: Next) -> BoxFuture<'static, Response> {
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
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self(core.audit.clone())
    }
}

impl Filter for Audit {
    fn call(&self, mut exchange: Exchange, next: Next) -> BoxFuture<'static, Response> {
        let Some(auditor) = self.0.clone() else {
            return next.run(exchange);
        };
        let decision = auditor.decide(Some(&exchange.context.user), &exchange);
        if decision.level == Level::None {
            return next.run(exchange);
        }
        Box::pin(async move {
            auditor.log.room().await;
            let event = AuditEvent::new(&auditor, decision, &exchange);
            if !event.write(Stage::RequestReceived).await && !auditor.log.ignores_errors() {
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
            let is_told = event.answered(&response);
            if long_running {
                event.write(Stage::ResponseStarted).await;
                return response;
            }
            if is_told || !reads_answer {
                return response;
            }
            read_answer(&event, response).await
        })
    }
}

/// Upstream's refusal in the mode `blocking-strict`.
fn not_stored(exchange: &Exchange) -> Response {
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
fn answers_with_object(exchange: &Exchange) -> bool {
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
