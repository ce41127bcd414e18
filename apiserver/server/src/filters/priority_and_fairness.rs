//! Priority and fairness: a request is executed when its priority level has seats for it ([`crate::flow_control`]).
//!
//! A request waits in a queue for a quarter of the time it has. Long-running requests have no seats, watches aside: those
//! have some until their initial events are queued, whenever their clients read them. `--max-requests-inflight` and `--max-mutating-requests-inflight` together
//! are the seats of the server; where both are 0 there is no limit. A request that becomes heavy gives its seats back: its
//! turns are those of its user's heavy work.

use super::completion::Completion;
use super::filter::{Filter, Next};
use super::too_many_after;
use crate::exchange::{RequestExchange, Response};
use crate::flow_control::controller::{Classified, Schema};
use crate::flow_control::priority_level::Digest;
use crate::flow_control::utilization::{InPhase, Phase};
use crate::flow_control::work_estimate::ListRequest;
use crate::flow_control::{FlowControl, Seats, Start};
use crate::metrics::{GaugeGuard, Metrics, RequestLabels};
use crate::state::ServerState;
use apiserver_endpoints::Query;
use apiserver_registry::Registry;
use futures::future::BoxFuture;
use http::{HeaderName, Uri};
use machinery_meta::FieldSelector;
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Part of its time for which a request waits at most.
const WAITING_PART: u32 = 4;
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

pub(crate) struct PriorityAndFairness {
    /// `None`: without limit.
    control: Option<Arc<FlowControl>>,
    request_timeout: Duration,
    metrics: Arc<Metrics>,
    registry: Registry,
}

impl PriorityAndFairness {
    pub(crate) fn new(core: &Arc<ServerState>) -> Self {
        Self {
            control: core.flow_control.clone(),
            request_timeout: core.config.request_timeout,
            metrics: Arc::clone(&core.metrics),
            registry: core.registry.clone(),
        }
    }

    fn seat_request(&self, exchange: &RequestExchange) -> SeatRequest {
        let kind = if exchange.is_mutating() {
            "mutating"
        } else {
            "readOnly"
        };
        let runtime = exchange.context.runtime.clone();
        let by_default = runtime.monotonic() + self.request_timeout;
        SeatRequest {
            control: self.control.clone(),
            metrics: Arc::clone(&self.metrics),
            digest: Digest {
                user: Arc::clone(&exchange.context.user),
                info: Arc::clone(&exchange.info),
                own: exchange.peer.identity.is_some(),
            },
            kind,
            deadline: exchange.context.deadline.unwrap_or(by_default),
            queued: Completion::of(exchange).map_or_else(Arc::default, |own| own.queued()),
            runtime,
        }
    }
}

impl Filter for PriorityAndFairness {
    fn call(&self, exchange: RequestExchange, next: Next) -> BoxFuture<'static, Response> {
        let is_watch = exchange.info.is_resource_request && exchange.info.verb == "watch";
        if exchange.is_long_running() && !is_watch {
            return next.run(exchange);
        }
        let seat_request = self.seat_request(&exchange);
        let watched = self.control.clone().filter(|_| is_watch);
        let list = list_request(&exchange, is_watch);
        let registry = self.registry.clone();
        Box::pin(async move {
            let granted = match seat_request.seats(list).await {
                Ok(granted) => granted,
                Err(rejected) => {
                    let labels = RequestLabels::of_dropped(&registry, &exchange);
                    let series = seat_request.metrics.requests.series(&labels);
                    series.code(rejected.status().as_u16());
                    series.terminated(rejected.status().as_u16());
                    return rejected;
                }
            };
            let executing = Executing(Arc::new((Mutex::new(Some(granted.place)), seat_request)));
            // A watcher is counted to its end.
            let tracked = watched.map(|control| control.watches.track(&exchange.info));
            let response = execute(exchange, next, executing).await;
            let response = response.map(|body| match tracked {
                Some(tracked) => body.holding(tracked),
                None => body,
            });
            match granted.schema {
                Some(schema) => with_uids(response, &schema),
                None => response,
            }
        })
    }
}

/// A request for seats, once or again.
struct SeatRequest {
    control: Option<Arc<FlowControl>>,
    metrics: Arc<Metrics>,
    digest: Digest,
    kind: &'static str,
    deadline: Duration,
    /// Nanoseconds that the request waited.
    queued: Arc<AtomicU64>,
    runtime: Runtime,
}

struct Granted {
    place: ExecutionGuard,
    schema: Option<Arc<Schema>>,
}

/// A place among those that are executed; dropped, it is free.
struct ExecutionGuard {
    seats: Option<Seats>,
    _in_flight: GaugeGuard,
    _executing: Option<InPhase>,
}

impl SeatRequest {
    /// Seats, when they are to be had; otherwise the answer.
    async fn seats(&self, list: Option<ListRequest>) -> Result<Granted, Response> {
        let Some(control) = &self.control else {
            return Ok(self.granted(None, None));
        };
        let Classified { schema, start } = control.start(self.digest.clone(), list);
        let seats = match start {
            Start::Execute(seats) => Some(seats),
            Start::Reject => None,
            Start::Wait(wait) => {
                let _in_queue = self.metrics.in_queue(self.kind);
                let _waiting = InPhase::begin(control, Phase::Waiting, self.kind);
                let begun = self.runtime.monotonic();
                let seats = wait.seats(self.waiting_limit()).await;
                self.note_wait(self.runtime.monotonic().saturating_sub(begun));
                seats
            }
        };
        if seats.is_none() {
            self.metrics.dropped(self.kind);
            let answer = too_many_after(schema.level().retry_after());
            return Err(with_uids(answer, &schema));
        }
        Ok(self.granted(seats, Some(schema)))
    }

    fn granted(&self, seats: Option<Seats>, schema: Option<Arc<Schema>>) -> Granted {
        let executing = self
            .control
            .as_ref()
            .map(|control| InPhase::begin(control, Phase::Executing, self.kind));
        let place = ExecutionGuard {
            seats,
            _in_flight: self.metrics.in_flight(self.kind),
            _executing: executing,
        };
        Granted { place, schema }
    }

    fn note_wait(&self, waited: Duration) {
        let nanoseconds = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        self.queued.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    fn waiting_limit(&self) -> Duration {
        let left = self.deadline.saturating_sub(self.runtime.monotonic());
        (left / WAITING_PART).min(LONGEST_WAIT)
    }
}

fn with_uids(mut response: Response, schema: &Schema) -> Response {
    let (of_schema, of_level) = schema.uids();
    response.headers_mut().insert(SCHEMA_UID, of_schema);
    response.headers_mut().insert(LEVEL_UID, of_level);
    response
}

/// The request for which the seats of a list, or of a watch that begins with one, are estimated.
fn list_request(exchange: &RequestExchange, is_watch: bool) -> Option<ListRequest> {
    let info = &exchange.info;
    if !is_watch && info.verb != "list" {
        return None;
    }
    let query = query_of(exchange.request.uri());
    let value = |name: &str| query.get(name).unwrap_or_default();
    if is_watch {
        let begins_anew = matches!(value("resourceVersion"), "" | "0");
        if !query.boolean("sendInitialEvents") && !begins_anew {
            return None;
        }
    }
    let named = || {
        FieldSelector::parse(&info.field_selector).is_ok_and(|own| own.required("metadata.name").is_some())
    };
    let limit = value("limit").parse().unwrap_or(0);
    let exact = is_exact(
        value("resourceVersionMatch"),
        value("resourceVersion"),
        (value("continue"), limit),
    );
    Some(ListRequest {
        limit,
        single: !info.name.is_empty() || (!info.field_selector.is_empty() && named()),
        selects: !info.field_selector.is_empty() || !value("labelSelector").is_empty(),
        from_cache: is_watch || !exact,
    })
}

/// Reports whether a list is of one revision, which upstream reads from etcd and not from its cache (storage/cacher/delegator's
/// `ShouldDelegateListMeta`, without snapshots).
fn is_exact(version_match: &str, version: &str, (continued, limit): (&str, u64)) -> bool {
    match version_match {
        "" => !continued.is_empty() || (limit > 0 && !matches!(version, "" | "0")),
        of_version => of_version != "NotOlderThan",
    }
}

fn query_of(uri: &Uri) -> Query {
    Query::of(uri)
}

/// A request in execution. It travels with the request: a mutation that outlives its client keeps its seats to its end.
#[derive(Clone)]
pub(crate) struct Executing(Arc<(Mutex<Option<ExecutionGuard>>, SeatRequest)>);

impl Executing {
    /// Gives the seats back until [`Self::resume`]: the client may take any time. Dropped, the guard ends the time
    /// for which the request is counted among those whose bodies arrive.
    pub(crate) fn leave(&self) -> GaugeGuard {
        let (place, seat_request) = &*self.0;
        let place = place.lock().take();
        if let Some(seats) = place.and_then(|place| place.seats) {
            seats.leave();
        }
        seat_request.metrics.arriving(seat_request.kind)
    }

    /// Gives the seats back for good: another server does the work.
    pub(crate) fn delegate(&self) {
        drop(self.0.0.lock().take());
    }

    /// Seats again, in turn with all others; an error is the answer.
    pub(crate) async fn resume(&self) -> Result<(), Response> {
        let (place, seat_request) = &*self.0;
        let granted = seat_request.seats(None).await?;
        *place.lock() = Some(granted.place);
        Ok(())
    }
}

fn execute(mut exchange: RequestExchange, next: Next, executing: Executing) -> BoxFuture<'static, Response> {
    exchange.request.extensions_mut().insert(executing.clone());
    // Among the heavy work each user has their own turns. Seats that wait there, up to a hundred of a list, would be
    // missing for requests that need one for a moment.
    let seats = Arc::downgrade(&executing.0);
    exchange.context.weight.when_heavy(move || {
        if let Some(executing) = seats.upgrade() {
            drop(executing.0.lock().take());
        }
    });
    Box::pin(async move {
        let response = next.run(exchange).await;
        drop(executing);
        response
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::Peer;
    use apiserver_endpoints::{Body, RequestInfo};
    use apiserver_registry::RequestContext;
    use http::header::ACCEPT;
    use machinery_meta::UserInfo;
    use machinery_runtime::Simulation;

    #[track_caller]
    fn check(query: &str, accept: &str, is_watch: bool, expected: Option<bool>) {
        let uri = format!("/api/v1/pods?{query}");
        let request = http::Request::get(uri).header(ACCEPT, accept).body(Body::empty());
        let request = request.unwrap();
        let exchange = RequestExchange {
            info: Arc::new(RequestInfo::parse(request.method(), request.uri()).unwrap()),
            context: RequestContext::internal(UserInfo::anonymous(), Simulation::new(1).runtime()),
            peer: Peer::default(),
            request,
            delegate: None,
        };
        let found = list_request(&exchange, is_watch).map(|list| list.from_cache);
        assert_eq!(found, expected, "{query} {accept}");
    }

    /// Upstream: `ShouldDelegateListMeta` with `CacheWithoutSnapshots`.
    #[test]
    fn seats_of_lists_from_the_cache_are_bounded_in_every_form() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let protobuf = "application/vnd.kubernetes.protobuf";
        for accept in ["application/json", table, protobuf, "application/yaml"] {
            check("", accept, false, Some(true));
            check("resourceVersion=0&limit=500", accept, false, Some(true));
            check("limit=500", accept, false, Some(true));
            check("resourceVersion=7", accept, false, Some(true));
            check(
                "resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=1",
                accept,
                false,
                Some(true),
            );
            check("limit=500&continue=x", accept, false, Some(false));
            check("resourceVersion=7&limit=500", accept, false, Some(false));
            check(
                "resourceVersion=7&resourceVersionMatch=Exact",
                accept,
                false,
                Some(false),
            );
            check("watch=true&resourceVersion=7", accept, true, None);
            check("watch=true", accept, true, Some(true));
            // Go's conversion of a parameter to a truth value.
            for (written, is_list) in [
                ("true", true),
                ("1", true),
                ("", true),
                ("yes", true),
                ("0", false),
                ("False", false),
            ] {
                let query = format!("watch=true&sendInitialEvents={written}&resourceVersion=7");
                check(&query, accept, true, is_list.then_some(true));
            }
        }
    }
}
