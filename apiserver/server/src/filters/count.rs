//! Counts and times requests that have passed all checks, under upstream's metric names: as there, the handler counts, and
//! what a filter refuses is not counted.

use super::completion::{Completion, Outcome};
use super::filter::{Filter, Next};
use crate::exchange::{RequestExchange, Response};
use crate::metrics::{GaugeGuard, Metrics, RequestLabels, RequestSeries};
use crate::state::ServerState;
use apiserver_registry::Registry;
use futures::future::BoxFuture;
use http::StatusCode;
use http_body::Body as _;
use machinery_runtime::Runtime;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

/// The user of the server's requests to itself.
const APISERVER: &str = "system:apiserver";

pub(crate) struct Count {
    metrics: Arc<Metrics>,
    registry: Registry,
}

impl Count {
    pub(crate) fn new(core: &Arc<ServerState>) -> Self {
        Self {
            metrics: Arc::clone(&core.metrics),
            registry: core.registry.clone(),
        }
    }
}

/// A request under way. It is counted when its last holder drops it: the request's completion, and what goes on
/// after an answer that switches protocols.
#[derive(Clone)]
pub(crate) struct UnderWay {
    _counted: Arc<Counted>,
}

struct Counted {
    series: Arc<RequestSeries>,
    runtime: Runtime,
    begun: Duration,
    /// Nanoseconds.
    queued: Arc<AtomicU64>,
    code: AtomicU16,
    field_validation: &'static str,
    /// The handler has answered, and no filter in its place.
    handled: AtomicBool,
    _long_running: Option<GaugeGuard>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let took = self.runtime.monotonic().saturating_sub(self.begun);
        let queued = Duration::from_nanos(self.queued.load(Ordering::Relaxed));
        let code = *self.code.get_mut();
        self.series.ended(code, took.as_secs_f64(), queued.as_secs_f64());
        self.series.validated(self.field_validation, took.as_secs_f64());
        if code == Outcome::Abandoned.code() {
            self.series.aborted();
        }
        if code == StatusCode::GATEWAY_TIMEOUT.as_u16() && !*self.handled.get_mut() {
            self.series.terminated(code);
        }
    }
}

/// Bytes of an answer that is made while it is sent.
struct Sent {
    series: Arc<RequestSeries>,
    bytes: Arc<AtomicU64>,
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.series.sized(self.bytes.load(Ordering::Relaxed));
    }
}

impl Filter for Count {
    fn call(&self, mut exchange: RequestExchange, next: Next) -> BoxFuture<'static, Response> {
        let labels = RequestLabels::of(&self.registry, &exchange);
        let counted = labels.zip(Completion::of(&exchange));
        let Some((labels, completion)) = counted else {
            return next.run(exchange);
        };
        let series = self.metrics.requests.series(&labels);
        if exchange.context.user.name == APISERVER {
            series.of_server();
        }
        let counted = begin(&mut exchange, &completion, &series, &labels);
        Box::pin(async move {
            let response = next.run(exchange).await;
            counted.handled.store(true, Ordering::Relaxed);
            // From here on the completion holds it.
            drop(counted);
            match labels.reads {
                true => sized(response, series),
                false => response,
            }
        })
    }
}

fn begin(
    exchange: &mut RequestExchange,
    completion: &Completion,
    series: &Arc<RequestSeries>,
    labels: &RequestLabels,
) -> Arc<Counted> {
    let is_long = exchange.is_long_running();
    let counted = Arc::new(Counted {
        series: Arc::clone(series),
        runtime: exchange.context.runtime.clone(),
        begun: completion.begun_at(),
        queued: completion.queued(),
        code: AtomicU16::new(0),
        field_validation: labels.field_validation,
        handled: AtomicBool::new(false),
        _long_running: is_long.then(|| GaugeGuard::new(series.long_running(labels.running))),
    });
    exchange.request.extensions_mut().insert(Arc::clone(series));
    if is_long {
        let under_way = UnderWay {
            _counted: Arc::clone(&counted),
        };
        exchange.request.extensions_mut().insert(under_way);
    }
    let own = Arc::clone(&counted);
    completion.observe(move |outcome| own.code.store(outcome.code(), Ordering::Relaxed));
    counted
}

/// Counts the bytes of an answer.
fn sized(response: Response, series: Arc<RequestSeries>) -> Response {
    if let Some(bytes) = response.body().size_hint().exact() {
        series.sized(bytes);
        return response;
    }
    let bytes = Arc::new(AtomicU64::new(0));
    response.map(|body| {
        let body = body.counting(Arc::clone(&bytes));
        body.holding(Sent { series, bytes })
    })
}
