//! Reads the body of a change before anything begins: bounded in size, in memory over all requests ([`MemoryShares`]) and
//! in how slowly it may come. A client that leaves while sending has changed nothing.

use super::audit::AuditEvent;
use super::priority_and_fairness::Executing;
use super::{class_of, refuse, too_many};
use crate::exchange::{Exchange, Response};
use crate::handler_chain::{Filter, Next};
use crate::server::Core;
use apiserver_endpoints::body::ReadBodyError;
use apiserver_endpoints::{Body, HeldMemory, MemoryShares};
use apiserver_registry::RegistryError;
use bytes::Bytes;
use futures::future::BoxFuture;
use machinery_runtime::Runtime;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Upstream's limit of a request body.
pub(crate) const MAX_BODY_BYTES: usize = 3 << 20;
/// Of the memory of bodies one user may hold this part, a whole body at least.
const PART_OF_USER: usize = 8;
/// How much of a body that was refused is read and forgotten before the answer, and how long.
const MAX_DISCARDED_BYTES: usize = 8 << 20;
const MAX_DISCARDING: Duration = Duration::from_secs(10);
/// The beginning of each body is not counted: so much costs a place among those in flight anyway, and most are smaller.
const UNCOUNTED_BYTES: usize = 64 << 10;
/// In each interval of the configured pace a body must go on by so much; a slower one holds what others could use.
const PACE_BYTES: usize = 5 << 10;

pub(crate) struct ReadBody {
    memory: Arc<MemoryShares>,
    pace_interval: Duration,
}

impl ReadBody {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        let bytes = core.config.body_memory_bytes;
        Self {
            memory: MemoryShares::new(bytes, (bytes / PART_OF_USER).max(MAX_BODY_BYTES)),
            pace_interval: core.config.body_pace_interval,
        }
    }
}

/// Why a body was not read.
enum Unread {
    Body(ReadBodyError),
    TooSlow,
}

/// Reads a body as its memory is to be had and it keeps the pace.
async fn read(
    body: &mut Body,
    held: &mut HeldMemory,
    runtime: &Runtime,
    pace_interval: Duration,
) -> Result<Bytes, Unread> {
    let arrived = AtomicUsize::new(0);
    let is_admitted = |bytes: usize| {
        arrived.store(bytes, Ordering::Relaxed);
        held.grow_to(bytes.saturating_sub(UNCOUNTED_BYTES))
    };
    tokio::select! { biased;
        read = body.read_while(MAX_BODY_BYTES, is_admitted) => read.map_err(Unread::Body),
        () = falls_behind(&arrived, runtime, pace_interval) => Err(Unread::TooSlow),
    }
}

async fn falls_behind(arrived: &AtomicUsize, runtime: &Runtime, pace_interval: Duration) {
    let mut due = PACE_BYTES;
    loop {
        runtime.sleep(pace_interval).await;
        let arrived = arrived.load(Ordering::Relaxed);
        if arrived < due {
            return;
        }
        due = arrived + PACE_BYTES;
    }
}

/// Most clients send all of a body before they read; an answer to one that cannot finish sending is lost to a reset.
/// What is discarded costs no memory.
async fn answer_after_discarding(body: Body, runtime: &Runtime, answer: Response) -> Response {
    // Who has not sent it by then gets its answer nevertheless.
    let _ = runtime
        .timeout(MAX_DISCARDING, body.discard(MAX_DISCARDED_BYTES))
        .await;
    answer
}

/// Whether a body that says its size says too much.
fn is_too_large(body: &Body) -> bool {
    let hint = http_body::Body::size_hint(body);
    hint.exact().is_some_and(|exact| exact > MAX_BODY_BYTES as u64)
}

impl Filter for ReadBody {
    fn call(&self, mut exchange: Exchange, next: Next) -> BoxFuture<'static, Response> {
        if !exchange.is_mutating() || exchange.is_long_running() {
            return next.run(exchange);
        }
        let mut held = self.memory.hold(class_of(&exchange), &exchange.context.user.name);
        let (runtime, pace_interval) = (exchange.context.runtime.clone(), self.pace_interval);
        let mut body = std::mem::take(exchange.request.body_mut());
        Box::pin(async move {
            if is_too_large(&body) {
                let answer = refuse(&RegistryError::TooLarge(MAX_BODY_BYTES));
                return answer_after_discarding(body, &runtime, answer).await;
            }
            let executing = exchange.request.extensions().get::<Executing>();
            let arriving = executing.map(|executing| executing.arriving(&exchange.context.user.name));
            let Ok(arriving) = arriving.transpose() else {
                // Whoever waited for the rest would keep the seats.
                return too_many();
            };
            let why = match read(&mut body, &mut held, &runtime, pace_interval).await {
                Ok(bytes) => {
                    drop(arriving);
                    if let Some(event) = AuditEvent::of(&exchange) {
                        event.request_body(exchange.request.headers(), &bytes);
                    }
                    *exchange.request.body_mut() = Body::from(bytes);
                    let permit = BodyPermit(Arc::new(held));
                    exchange.request.extensions_mut().insert(permit);
                    return next.run(exchange).await;
                }
                Err(why) => why,
            };
            drop(held);
            let answer = match why {
                Unread::TooSlow => {
                    return refuse(&RegistryError::SlowBody);
                }
                Unread::Body(ReadBodyError::Broken(why)) => return refuse(&RegistryError::BadRequest(why)),
                Unread::Body(ReadBodyError::TooLarge(limit)) => refuse(&RegistryError::TooLarge(limit)),
                Unread::Body(ReadBodyError::NotAdmitted) => too_many(),
            };
            answer_after_discarding(body, &runtime, answer).await
        })
    }
}

/// Travels with the request, so that the memory is counted as long as the request lives.
#[derive(Clone)]
pub(crate) struct BodyPermit(#[expect(dead_code, reason = "held, never read")] Arc<HeldMemory>);
