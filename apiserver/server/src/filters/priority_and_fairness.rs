//! Priority and fairness: a request is executed when its priority level has seats for it ([`crate::flow_control`]).
//!
//! A request waits in a queue for a quarter of the time it has. Long-running requests have no seats, watches aside: those
//! have some until their initial events are sent. `--max-requests-inflight` and `--max-mutating-requests-inflight` together
//! are the seats of the server; where both are 0 there is no limit.

use super::too_many_after;
use crate::exchange::{Exchange, Response};
use crate::flow_control::controller::{Classified, Schema};
use crate::flow_control::priority_level::{Arriving, Digest};
use crate::flow_control::work_estimate::ListRequest;
use crate::flow_control::{FlowControl, Seats, Start};
use crate::handler_chain::{Filter, Next};
use crate::metrics::{GaugeGuard, Metrics};
use crate::server::Core;
use apiserver_endpoints::{Query, UntilInitialized};
use futures::future::BoxFuture;
use http::header::ACCEPT;
use http::{HeaderName, Uri};
use machinery_meta::FieldSelector;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Of the time a request has, it waits this part at most.
const WAITING_PART: u32 = 4;
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// A watch whose client does not read its initial events keeps its seats no longer.
const LONGEST_INITIALIZATION: Duration = Duration::from_secs(10);
const SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

pub(crate) struct PriorityAndFairness {
    /// `None`: without limit.
    control: Option<Arc<FlowControl>>,
    request_timeout: Duration,
    metrics: Arc<Metrics>,
}

impl PriorityAndFairness {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self {
            control: core.flow_control.clone(),
            request_timeout: core.config.request_timeout,
            metrics: Arc::clone(&core.metrics),
        }
    }
}

impl Filter for PriorityAndFairness {
    fn call(&self, exchange: Exchange, next: Next) -> BoxFuture<'static, Response> {
        let is_watch = exchange.info.is_resource_request && exchange.info.verb == "watch";
        if exchange.is_long_running() && !is_watch {
            return next.run(exchange);
        }
        let kind = if exchange.is_mutating() {
            "mutating"
        } else {
            "readOnly"
        };
        let metrics = Arc::clone(&self.metrics);
        let Some(control) = &self.control else {
            let executing = Executing::new(None, &metrics, kind);
            return execute(exchange, next, executing);
        };
        let digest = Digest {
            user: Arc::clone(&exchange.context.user),
            info: Arc::clone(&exchange.info),
            own: exchange.peer.identity.is_some(),
        };
        let Classified { schema, start } = control.start(digest, list_request(&exchange, is_watch));
        let watching = is_watch.then(|| Arc::clone(control));
        match start {
            Start::Execute(seats) => {
                let executing = Executing::new(Some(seats), &metrics, kind);
                answer(exchange, next, executing, schema, watching)
            }
            Start::Reject => Box::pin(std::future::ready(reject(&metrics, kind, &schema))),
            Start::Wait(wait) => {
                let limit = self.waiting_limit(&exchange);
                Box::pin(async move {
                    let waiting = metrics.in_queue(kind);
                    let seats = wait.seats(limit).await;
                    drop(waiting);
                    match seats {
                        Some(seats) => {
                            let executing = Executing::new(Some(seats), &metrics, kind);
                            answer(exchange, next, executing, schema, watching).await
                        }
                        None => reject(&metrics, kind, &schema),
                    }
                })
            }
        }
    }
}

impl PriorityAndFairness {
    fn waiting_limit(&self, exchange: &Exchange) -> Duration {
        let now = exchange.context.runtime.monotonic();
        let left = exchange
            .context
            .deadline
            .map(|deadline| deadline.saturating_sub(now));
        (left.unwrap_or(self.request_timeout) / WAITING_PART).min(LONGEST_WAIT)
    }
}

fn reject(metrics: &Metrics, kind: &str, schema: &Schema) -> Response {
    metrics.dropped(kind);
    with_uids(too_many_after(schema.level().retry_after()), schema)
}

fn with_uids(mut response: Response, schema: &Schema) -> Response {
    let (of_schema, of_level) = schema.uids();
    response.headers_mut().insert(SCHEMA_UID, of_schema);
    response.headers_mut().insert(LEVEL_UID, of_level);
    response
}

/// What a list, or a watch that begins with one, is estimated by.
fn list_request(exchange: &Exchange, is_watch: bool) -> Option<ListRequest> {
    let info = &exchange.info;
    if !is_watch && info.verb != "list" {
        return None;
    }
    let query = query_of(exchange.request.uri());
    let value = |name: &str| query.get(name).unwrap_or_default();
    if is_watch {
        let begins_anew = matches!(value("resourceVersion"), "" | "0");
        if value("sendInitialEvents") != "true" && !begins_anew {
            return None;
        }
    }
    let named = || {
        FieldSelector::parse(&info.field_selector).is_ok_and(|own| own.required("metadata.name").is_some())
    };
    let accept = exchange
        .request
        .headers()
        .get(ACCEPT)
        .and_then(|value| value.to_str().ok());
    let is_made_whole = |accept: &str| {
        ["as=", "protobuf", "yaml"]
            .iter()
            .any(|form| accept.contains(form))
    };
    Some(ListRequest {
        limit: value("limit").parse().unwrap_or(0),
        single: !info.name.is_empty() || (!info.field_selector.is_empty() && named()),
        streamed: is_watch || !accept.is_some_and(is_made_whole),
    })
}

fn query_of(uri: &Uri) -> Query {
    Query::of(uri)
}

/// A user's bodies keep half of a level's seats.
pub(crate) struct TooManyArriving;

/// A request in execution. It travels with the request: a mutation that outlives its client keeps its seats to its end.
#[derive(Clone)]
pub(crate) struct Executing(Arc<(Option<Seats>, GaugeGuard)>);

impl Executing {
    fn new(seats: Option<Seats>, metrics: &Metrics, kind: &str) -> Self {
        Self(Arc::new((seats, metrics.in_flight(kind))))
    }

    /// Notes that the request waits for its body; an error where its user has too many of those.
    pub(crate) fn arriving(&self, user: &str) -> Result<Option<Arriving>, TooManyArriving> {
        let (seats, _) = &*self.0;
        let arriving = seats.as_ref().map(|seats| seats.arriving(user));
        arriving
            .map(|arriving| arriving.ok_or(TooManyArriving))
            .transpose()
    }
}

fn answer(
    exchange: Exchange,
    next: Next,
    executing: Executing,
    schema: Arc<Schema>,
    watching: Option<Arc<FlowControl>>,
) -> BoxFuture<'static, Response> {
    Box::pin(async move {
        let response = match watching {
            None => execute(exchange, next, executing).await,
            Some(control) => watch(exchange, next, executing, &control).await,
        };
        with_uids(response, &schema)
    })
}

fn execute(mut exchange: Exchange, next: Next, executing: Executing) -> BoxFuture<'static, Response> {
    exchange.request.extensions_mut().insert(executing.clone());
    Box::pin(async move {
        let response = next.run(exchange).await;
        drop(executing);
        response
    })
}

/// A watch keeps its seats until its initial events have been taken to be sent, and is counted as a watcher to its end.
async fn watch(mut exchange: Exchange, next: Next, executing: Executing, control: &FlowControl) -> Response {
    let tracked = control.watches.track(&exchange.info);
    let runtime = exchange.context.runtime.clone();
    let slot = Arc::new(Mutex::new(Some(executing)));
    let of_watch = Arc::clone(&slot);
    let initialized = UntilInitialized::new(move || drop(of_watch.lock().take()));
    exchange.request.extensions_mut().insert(initialized);
    let sleep = runtime.sleep(LONGEST_INITIALIZATION);
    let giving_up = async move {
        sleep.await;
        drop(slot.lock().take());
    };
    runtime.spawn("watch-initialization", giving_up).detach();
    let response = next.run(exchange).await;
    response.map(|body| body.holding(tracked))
}
