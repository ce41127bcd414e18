//! How many requests are answered at once: reading and changing ones are counted apart, as upstream's in-flight limits.
//! Priority levels and fair queues are to come in this place.

use super::too_many;
use crate::exchange::{Exchange, Response};
use crate::handler_chain::{Filter, Next};
use crate::metrics::{InFlightGuard, Metrics};
use crate::server::Core;
use futures::future::BoxFuture;
use machinery_meta::UserInfo;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) struct InFlight {
    reading: Arc<Semaphore>,
    mutating: Arc<Semaphore>,
    metrics: Arc<Metrics>,
}

impl InFlight {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self {
            reading: Arc::new(Semaphore::new(core.config.max_requests_inflight)),
            mutating: Arc::new(Semaphore::new(core.config.max_mutating_requests_inflight)),
            metrics: Arc::clone(&core.metrics),
        }
    }
}

impl Filter for InFlight {
    fn call(&self, mut exchange: Exchange, next: Next) -> BoxFuture<'static, Response> {
        if exchange.is_long_running() {
            return next.run(exchange);
        }
        let kind = if exchange.is_mutating() {
            "mutating"
        } else {
            "readOnly"
        };
        let limit = if exchange.is_mutating() {
            &self.mutating
        } else {
            &self.reading
        };
        let permit = Arc::clone(limit).try_acquire_owned().ok();
        // Those who repair the cluster always get through.
        if permit.is_none() && !exchange.context.user.in_group(UserInfo::MASTERS) {
            self.metrics.dropped(kind);
            return Box::pin(std::future::ready(too_many()));
        }
        let place = Place(Arc::new((permit, self.metrics.in_flight(kind))));
        exchange.request.extensions_mut().insert(place.clone());
        Box::pin(async move {
            let response = next.run(exchange).await;
            drop(place);
            response
        })
    }
}

/// A place among those in flight. It travels with the request: a mutation that outlives its client keeps it to its end.
#[derive(Clone)]
pub(crate) struct Place(
    #[expect(dead_code, reason = "held, never read")] Arc<(Option<OwnedSemaphorePermit>, InFlightGuard)>,
);
