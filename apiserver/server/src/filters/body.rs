//! Reads the body of a change before anything begins: bounded in size, in memory over all requests ([`MemoryShares`]) and
//! in how slowly it may come. A client that leaves while sending has changed nothing.
//!
//! A body that is not there at once arrives without seats: the request gives its own back and takes others, in turn with
//! all requests of its level, when the body is whole. Neither one that trickles in nor one that is read only to be
//! discarded holds a seat, however few the level has.

use super::filter::{Filter, Next};
use super::priority_and_fairness::Executing;
use super::{class_of, refuse_request, too_many};
use crate::exchange::{RequestExchange, Response};
use crate::metrics::RequestSeries;
use crate::state::ServerState;
use apiserver_endpoints::body::ReadBodyError;
use apiserver_endpoints::{ApiError, Body, HeldMemory, MAX_BODY_BYTES, MemoryShares, is_routed};
use apiserver_registry::{Registry, RegistryError};
use bytes::Bytes;
use futures::future::BoxFuture;
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Part of the memory of bodies that one user may hold, a whole body at least.
const PART_OF_USER: usize = 8;
/// Bytes of a refused body that are read and dropped before the answer, and the time for it.
const MAX_DISCARDED_BYTES: usize = 8 << 20;
const MAX_DISCARDING: Duration = Duration::from_secs(10);
/// The beginning of a body that arrives at once is not counted: the seats of its request bound how many there are.
const UNCOUNTED_BYTES: usize = 64 << 10;
/// A body that arrives without seats counts for so much at least: the request behind it costs memory too.
const LEAST_ARRIVING_BYTES: usize = 16 << 10;
/// Time that a request keeps its seats while its body arrives: about as long as a body takes that was sent at once.
const SEATED_ARRIVAL: Duration = Duration::from_millis(10);
/// Bytes by which a body must go on in each interval of the configured pace; a slower one holds what others could use.
const PACE_BYTES: usize = 5 << 10;

pub(crate) struct ReadBody {
    registry: Registry,
    memory: Arc<MemoryShares>,
    pace_interval: Duration,
}

impl ReadBody {
    pub(crate) fn new(core: &Arc<ServerState>) -> Self {
        let bytes = core.config.body_memory_bytes;
        Self {
            registry: core.registry.clone(),
            memory: MemoryShares::new(bytes, (bytes / PART_OF_USER).max(MAX_BODY_BYTES)),
            pace_interval: core.config.body_pace_interval,
        }
    }

    /// Reports whether a handler reads the body. Upstream's router answers before a missing handler could read.
    fn is_taken(&self, exchange: &RequestExchange) -> bool {
        if exchange.delegate.is_some() {
            return true;
        }
        let (info, method) = (&exchange.info, exchange.request.method());
        let store = (self.registry).store(&info.api_group, &info.api_version, &info.resource);
        info.is_resource_request && store.is_some_and(|store| is_routed(&store.row, info, method))
    }
}

/// The reason for which a body was not read.
enum BodyRefusal {
    Body(ReadBodyError),
    TooSlow,
    /// All of it was, and there were no seats for the request any more.
    NoSeats(Response),
}

/// A body on its way, and the memory that is counted for it.
struct Arrival {
    held: HeldMemory,
    /// The same memory, as the share of the extension that the body is passed on to.
    of_extension: Option<HeldMemory>,
    bytes: usize,
    is_seated: bool,
}

impl Arrival {
    fn admits(&mut self, bytes: usize) -> bool {
        self.bytes = bytes;
        let counted = if self.is_seated {
            bytes.saturating_sub(UNCOUNTED_BYTES)
        } else {
            bytes.max(LEAST_ARRIVING_BYTES)
        };
        self.held.grow_to(counted)
    }

    /// Counts all of it from now on, since the request has no seats.
    fn unseat(&mut self) -> bool {
        self.is_seated = false;
        self.admits(self.bytes)
    }
}

/// Reads a body as its memory is to be had and it keeps the pace.
async fn read(
    body: &mut Body,
    arrival: &Mutex<Arrival>,
    runtime: &Runtime,
    pace_interval: Duration,
) -> Result<Bytes, BodyRefusal> {
    let is_admitted = |bytes: usize| arrival.lock().admits(bytes);
    tokio::select! { biased;
        read = body.read_while(MAX_BODY_BYTES, is_admitted) => read.map_err(BodyRefusal::Body),
        () = falls_behind(arrival, runtime, pace_interval) => Err(BodyRefusal::TooSlow),
    }
}

/// The same; what is not there at once arrives without the request's seats.
async fn read_seated(
    body: &mut Body,
    arrival: &Mutex<Arrival>,
    executing: Option<&Executing>,
    runtime: &Runtime,
    pace_interval: Duration,
) -> Result<Bytes, BodyRefusal> {
    let mut reading = std::pin::pin!(read(body, arrival, runtime, pace_interval));
    if let Ok(read) = runtime.timeout(SEATED_ARRIVAL, reading.as_mut()).await {
        return read;
    }
    let arriving = executing.map(Executing::leave);
    if !arrival.lock().unseat() {
        return Err(BodyRefusal::Body(ReadBodyError::NotAdmitted));
    }
    let bytes = reading.await?;
    drop(arriving);
    if let Some(executing) = executing {
        executing.resume().await.map_err(BodyRefusal::NoSeats)?;
    }
    Ok(bytes)
}

async fn falls_behind(arrival: &Mutex<Arrival>, runtime: &Runtime, pace_interval: Duration) {
    let mut due = PACE_BYTES;
    loop {
        runtime.sleep(pace_interval).await;
        let arrived = arrival.lock().bytes;
        if arrived < due {
            return;
        }
        due = arrived + PACE_BYTES;
    }
}

/// Most clients send all of a body before they read; an answer to one that cannot finish sending is lost to a reset.
/// Discarded bytes cost no memory, and no seats.
async fn answer_after_discarding(
    body: Body,
    runtime: &Runtime,
    executing: Option<&Executing>,
    answer: Response,
) -> Response {
    let _arriving = executing.map(Executing::leave);
    // A client that has not sent it by then gets its answer nevertheless.
    let _ = runtime
        .timeout(MAX_DISCARDING, body.discard(MAX_DISCARDED_BYTES))
        .await;
    answer
}

/// Reports whether a body's declared size exceeds the bound.
fn is_too_large(body: &Body) -> bool {
    let hint = http_body::Body::size_hint(body);
    hint.exact().is_some_and(|exact| exact > MAX_BODY_BYTES as u64)
}

impl Filter for ReadBody {
    fn call(&self, mut exchange: RequestExchange, next: Next) -> BoxFuture<'static, Response> {
        if !exchange.is_mutating() || exchange.is_long_running() {
            return next.run(exchange);
        }
        let arrival = Mutex::new(Arrival {
            held: self
                .memory
                .hold(class_of(&exchange), &exchange.context.memory_owner()),
            of_extension: None,
            bytes: 0,
            is_seated: true,
        });
        let (runtime, pace_interval) = (exchange.context.runtime.clone(), self.pace_interval);
        let mut body = std::mem::take(exchange.request.body_mut());
        let is_taken = self.is_taken(&exchange);
        Box::pin(async move {
            let executing = exchange.request.extensions().get::<Executing>().cloned();
            let executing = executing.as_ref();
            if !is_taken {
                let answer = next.run(exchange).await;
                return answer_after_discarding(body, &runtime, executing, answer).await;
            }
            if is_too_large(&body) {
                let answer = refuse_request(&exchange, &RegistryError::TooLarge(MAX_BODY_BYTES));
                return answer_after_discarding(body, &runtime, executing, answer).await;
            }
            let why = match read_seated(&mut body, &arrival, executing, &runtime, pace_interval).await {
                Ok(bytes) => {
                    if let Some(series) = exchange.request.extensions().get::<Arc<RequestSeries>>() {
                        series.received(bytes.len());
                    }
                    *exchange.request.body_mut() = Body::from(bytes);
                    let permit = BodyPermit(Arc::new(arrival));
                    exchange.request.extensions_mut().insert(permit);
                    return next.run(exchange).await;
                }
                Err(why) => why,
            };
            drop(arrival);
            let answer = match why {
                BodyRefusal::NoSeats(answer) => return answer,
                BodyRefusal::TooSlow => {
                    return refuse_request(&exchange, &ApiError::SlowBody);
                }
                BodyRefusal::Body(ReadBodyError::Broken(why)) => {
                    return refuse_request(&exchange, &RegistryError::BadRequest(why));
                }
                BodyRefusal::Body(ReadBodyError::TooLarge(limit)) => {
                    refuse_request(&exchange, &RegistryError::TooLarge(limit))
                }
                BodyRefusal::Body(ReadBodyError::NotAdmitted) => too_many(),
            };
            answer_after_discarding(body, &runtime, executing, answer).await
        })
    }
}

/// Travels with the request, so that the memory is counted as long as the request lives.
#[derive(Clone)]
pub(crate) struct BodyPermit(Arc<Mutex<Arrival>>);

impl BodyPermit {
    /// Counts all of the body, for a request that gives its seats back and waits for an extension: to the user, and to the
    /// extension in `shares`. `false` where there is no memory for it.
    pub(crate) fn count_for_extension(&self, shares: &Arc<MemoryShares>, extension: &str) -> bool {
        let mut arrival = self.0.lock();
        arrival.of_extension = None;
        if arrival.unseat() {
            arrival.of_extension = shares.hold_share(extension, arrival.bytes);
        }
        arrival.of_extension.is_some()
    }
}
