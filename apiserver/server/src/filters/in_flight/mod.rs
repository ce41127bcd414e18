//! How many requests are answered at once: reading and changing ones are counted apart, as upstream's in-flight limits.
//!
//! Who finds no place ([`places`]) waits for one, as under upstream's fair queues: bounded in number and in time, which is
//! time of the request's own, and the users who wait take turns ([`line`]), so that nobody's flood keeps the others out. A
//! part of the places is not for ordinary users at all ([`UserClass`]), the simplest form of upstream's priority
//! levels, and no user has more than a part of the others.

mod line;
mod places;

use super::class_of;
use super::too_many;
use crate::exchange::{Exchange, Response};
use crate::handler_chain::{Filter, Next};
use crate::metrics::{GaugeGuard, Metrics};
use crate::server::Core;
use apiserver_endpoints::UserClass;
use futures::future::BoxFuture;
use places::{Asked, Holder, Permit, Places, Turn};
use std::sync::Arc;

/// Of the time a request has left it waits this part at most, as upstream's do.
const WAITING_PART: u32 = 4;

const PROBES: [&str; 3] = ["/healthz", "/livez", "/readyz"];

pub(crate) struct InFlight {
    /// `None`: without limit.
    reading: Option<Arc<Places>>,
    mutating: Option<Arc<Places>>,
    metrics: Arc<Metrics>,
}

impl InFlight {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        let places = |count: usize| (count > 0).then(|| Places::new(count));
        Self {
            reading: places(core.config.max_requests_inflight),
            mutating: places(core.config.max_mutating_requests_inflight),
            metrics: Arc::clone(&core.metrics),
        }
    }
}

impl Filter for InFlight {
    fn call(&self, exchange: Exchange, next: Next) -> BoxFuture<'static, Response> {
        if exchange.is_long_running() || is_probe(&exchange) {
            return next.run(exchange);
        }
        let (kind, places) = if exchange.is_mutating() {
            ("mutating", &self.mutating)
        } else {
            ("readOnly", &self.reading)
        };
        let Some(places) = places else {
            return run(exchange, next, None, self.metrics.in_flight(kind));
        };
        let standing = class_of(&exchange);
        let holder = Holder::new(standing, &exchange.context.user.name);
        // Those who repair the cluster always get through.
        if standing == UserClass::Administrator {
            return run(exchange, next, places.take(holder), self.metrics.in_flight(kind));
        }
        match places.ask(holder) {
            Asked::Taken(permit) => run(exchange, next, Some(permit), self.metrics.in_flight(kind)),
            Asked::Wait(turn) => Box::pin(wait(exchange, next, turn, kind, Arc::clone(&self.metrics))),
            Asked::Full => {
                self.metrics.dropped(kind);
                Box::pin(std::future::ready(too_many()))
            }
        }
    }
}

/// Upstream's FlowSchema `probes`, which is exempt: load balancers find out whether the server is alive while it is crowded.
fn is_probe(exchange: &Exchange) -> bool {
    let info = &exchange.info;
    !info.is_resource_request && info.verb == "get" && PROBES.contains(&info.path.as_str())
}

async fn wait(
    exchange: Exchange,
    next: Next,
    turn: Turn,
    kind: &'static str,
    metrics: Arc<Metrics>,
) -> Response {
    let runtime = exchange.context.runtime.clone();
    // Whatever comes here has a deadline; it was set before.
    let deadline = exchange.context.deadline.unwrap_or_default();
    let longest = deadline.saturating_sub(runtime.monotonic()) / WAITING_PART;
    let waiting = metrics.in_queue(kind);
    let turn = runtime.timeout(longest, turn.come()).await;
    drop(waiting);
    match turn {
        Ok(Some(permit)) => run(exchange, next, Some(permit), metrics.in_flight(kind)).await,
        Ok(None) | Err(_) => {
            metrics.dropped(kind);
            too_many()
        }
    }
}

fn run(
    mut exchange: Exchange,
    next: Next,
    permit: Option<Permit>,
    counted: GaugeGuard,
) -> BoxFuture<'static, Response> {
    let place = Place(Arc::new((permit, counted)));
    exchange.request.extensions_mut().insert(place.clone());
    Box::pin(async move {
        let response = next.run(exchange).await;
        drop(place);
        response
    })
}

/// A place among those in flight. It travels with the request: a mutation that outlives its client keeps it to its end.
#[derive(Clone)]
pub(crate) struct Place(#[expect(dead_code, reason = "held, never read")] Arc<(Option<Permit>, GaugeGuard)>);
