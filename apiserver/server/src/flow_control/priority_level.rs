//! A priority level in service: its queues behind a lock, and the requests that hold or await seats.

use super::controller::Schema;
use super::dropped_requests::DroppedRequests;
use super::flow_schema;
use super::queue_set::{Arrival, QueueSet, Queuing, Rejection, Request, RequestId};
use super::work_estimate::WorkEstimate;
use apiserver_endpoints::RequestInfo;
use http::HeaderValue;
use machinery_meta::UserInfo;
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// See the module.
pub(crate) struct PriorityLevel {
    pub(super) name: String,
    uid: Mutex<HeaderValue>,
    /// The most seats that one request is estimated to need; 0 sets none.
    pub(super) max_seats: AtomicU32,
    pub(super) requests: Mutex<QueueSet<Ticket>>,
    pub(super) dropped: DroppedRequests,
    runtime: Runtime,
}

impl std::fmt::Debug for PriorityLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PriorityLevel")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The data kept of a request.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(super) schema: Arc<Schema>,
    pub(super) digest: Digest,
    is_watch: bool,
    /// Its level is not exempt: its wait is observed, however short.
    is_limited: bool,
    waiter: Option<oneshot::Sender<()>>,
}

impl Ticket {
    /// The text that distinguishes its flow from others of the schema.
    pub(super) fn flow(&self) -> &str {
        let method = self.schema.object.spec.distinguisher_method;
        flow_schema::distinguisher(method, &self.digest.user, &self.digest.info)
    }
}

/// Attributes of a request that classification reads: user, target and origin.
#[derive(Debug, Clone)]
pub(crate) struct Digest {
    pub(crate) user: Arc<UserInfo>,
    pub(crate) info: Arc<RequestInfo>,
    /// It comes from this process itself.
    pub(crate) own: bool,
}

/// The answer to a request for seats.
#[derive(Debug)]
pub(crate) enum Start {
    Execute(Seats),
    Wait(Wait),
    Reject,
}

/// Notes in the metrics that a request is dispatched, and wakes it.
fn dispatched(request: &mut Request<Ticket>, now: Duration) {
    let metrics = &request.kept.schema.metrics;
    let seats = i64::from(request.estimate.max_seats());
    metrics.dispatched.inc();
    metrics.executing_requests.inc();
    metrics.executing_seats.add(seats);
    if request.kept.waiter.is_some() {
        metrics.waiting_requests.dec();
        metrics.waiting_seats.sub(seats);
    }
    if request.kept.is_limited {
        metrics
            .waited
            .observe(now.saturating_sub(request.arrival).as_secs_f64());
    }
    if let Some(waiter) = request.kept.waiter.take() {
        // A request that has just timed out finishes by itself.
        let _ = waiter.send(());
    }
}

/// Notes in the metrics that the request whose turn it was found too few seats.
fn note_unaccommodated(requests: &mut QueueSet<Ticket>) {
    if let Some(request) = requests.take_unaccommodated() {
        request.kept.schema.metrics.unaccommodated.inc();
    }
}

impl PriorityLevel {
    pub(super) fn new(name: &str, queuing: Queuing, limit: usize, runtime: &Runtime) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            uid: Mutex::new(HeaderValue::from_static("")),
            max_seats: AtomicU32::new(0),
            requests: Mutex::new(QueueSet::new(queuing, limit, runtime.monotonic())),
            dropped: DroppedRequests::default(),
            runtime: runtime.clone(),
        })
    }

    pub(super) fn set_uid(&self, uid: HeaderValue) {
        *self.uid.lock() = uid;
    }

    pub(crate) fn uid(&self) -> HeaderValue {
        self.uid.lock().clone()
    }

    pub(crate) fn max_seats(&self) -> u32 {
        self.max_seats.load(Ordering::Relaxed)
    }

    /// `limit` seats; utilisation is measured by `denominator`, which is not 0.
    pub(super) fn configure(&self, queuing: Queuing, limit: usize, denominator: usize) {
        let now = self.runtime.monotonic();
        let mut requests = self.requests.lock();
        requests.configure(queuing, limit, now, |request| dispatched(request, now));
        note_unaccommodated(&mut requests);
        requests.note_limits(denominator, now);
    }

    /// Seats for a request, now or later.
    pub(crate) fn start(
        self: &Arc<Self>,
        schema: &Arc<Schema>,
        digest: Digest,
        hash: u64,
        estimate: WorkEstimate,
    ) -> Start {
        let now = self.runtime.monotonic();
        let metrics = &schema.metrics;
        metrics.estimated_seats.observe(f64::from(estimate.max_seats()));
        let own = digest.own;
        let mut requests = self.requests.lock();
        let ticket = Ticket {
            schema: Arc::clone(schema),
            is_limited: !requests.is_exempt(),
            is_watch: digest.info.verb == "watch",
            digest,
            waiter: None,
        };
        let arrival = Arrival { estimate, hash, own };
        let started = requests.start(arrival, ticket, now, |request| dispatched(request, now));
        note_unaccommodated(&mut requests);
        let id = match started {
            Ok(id) => id,
            Err(reason) => {
                drop(requests);
                // It did not wait at all, which upstream counts with those that did.
                metrics.waited_in_vain.observe(0.0);
                metrics.rejected(reason.as_str());
                return Start::Reject;
            }
        };
        let Some(request) = requests.requests().get(&id) else {
            return Start::Reject;
        };
        if request.queue.is_some() {
            #[expect(clippy::cast_precision_loss, reason = "queues are short")]
            metrics.queue_length.observe(request.queue_length as f64);
        }
        let level = Arc::clone(self);
        if request.start.is_some() {
            return Start::Execute(Seats { level, id });
        }
        let (sender, receiver) = oneshot::channel();
        if let Some(request) = requests.request_mut(id) {
            request.kept.waiter = Some(sender);
        }
        metrics.waiting_requests.inc();
        metrics.waiting_seats.add(i64::from(estimate.max_seats()));
        Start::Wait(Wait {
            waiting: Some((level, id)),
            receiver,
        })
    }

    /// Seconds after which a rejected client may come again.
    pub(crate) fn retry_after(&self) -> u64 {
        self.dropped.note(self.runtime.monotonic().as_secs())
    }

    fn finish(self: &Arc<Self>, id: RequestId) {
        let now = self.runtime.monotonic();
        let mut requests = self.requests.lock();
        if let Some(request) = requests.requests().get(&id) {
            let took = now.saturating_sub(request.start.unwrap_or(now)).as_secs_f64();
            let metrics = &request.kept.schema.metrics;
            metrics.execution[usize::from(request.kept.is_watch)].observe(took);
            metrics.executing_requests.dec();
            if request.estimate.additional_latency.is_zero() {
                metrics
                    .executing_seats
                    .sub(i64::from(request.estimate.max_seats()));
            }
        }
        let kept_for = requests.finish(id, now, |request| dispatched(request, now));
        note_unaccommodated(&mut requests);
        drop(requests);
        if let Some(latency) = kept_for {
            let level = Arc::clone(self);
            let releasing = async move {
                level.runtime.sleep(latency).await;
                level.release(id);
            };
            self.runtime.spawn("additional-latency", releasing).detach();
        }
    }

    /// The seats that a finished request kept are free.
    fn release(&self, id: RequestId) {
        let now = self.runtime.monotonic();
        let mut requests = self.requests.lock();
        if let Some(request) = requests.requests().get(&id) {
            let seats = i64::from(request.estimate.max_seats());
            request.kept.schema.metrics.executing_seats.sub(seats);
        }
        requests.release(id, now, |request| dispatched(request, now));
        note_unaccommodated(&mut requests);
    }

    /// Leaves the queue; a request that was dispatched meanwhile ends by this.
    fn give_up(self: &Arc<Self>, id: RequestId, why: Rejection) {
        let now = self.runtime.monotonic();
        let mut requests = self.requests.lock();
        let waiting = requests.requests().get(&id).map(|request| {
            let waited = now.saturating_sub(request.arrival).as_secs_f64();
            (
                Arc::clone(&request.kept.schema),
                i64::from(request.estimate.max_seats()),
                waited,
            )
        });
        if !requests.cancel(id, why, now) {
            drop(requests);
            return self.finish(id);
        }
        drop(requests);
        if let Some((schema, seats, waited)) = waiting {
            let metrics = &schema.metrics;
            metrics.waiting_requests.dec();
            metrics.waiting_seats.sub(seats);
            // `execute` says whether it was rejected at once, as upstream has it.
            metrics.waited.observe(waited);
            metrics.rejected(why.as_str());
        }
    }
}

/// Seats that a request has; dropped, its execution has ended.
#[derive(Debug)]
pub(crate) struct Seats {
    level: Arc<PriorityLevel>,
    id: RequestId,
}

impl Drop for Seats {
    fn drop(&mut self) {
        self.level.finish(self.id);
    }
}

impl Seats {
    /// Gives the seats back before the work has begun.
    pub(crate) fn leave(self) {
        self.level.requests.lock().forget_final_work(self.id);
    }
}

/// The wait for seats; dropped, the request leaves the queue.
#[derive(Debug)]
pub(crate) struct Wait {
    /// `None` once the wait is over.
    waiting: Option<(Arc<PriorityLevel>, RequestId)>,
    receiver: oneshot::Receiver<()>,
}

impl Wait {
    /// The seats, once they are to be had; `None` where that is not before `limit`.
    pub(crate) async fn seats(mut self, limit: Duration) -> Option<Seats> {
        let runtime = self.waiting.as_ref()?.0.runtime.clone();
        let granted = runtime.timeout(limit, &mut self.receiver).await;
        if matches!(granted, Ok(Ok(()))) {
            let (level, id) = self.waiting.take()?;
            return Some(Seats { level, id });
        }
        self.give_up(Rejection::TimeOut);
        None
    }

    fn give_up(&mut self, why: Rejection) {
        if let Some((level, id)) = self.waiting.take() {
            level.give_up(id, why);
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.give_up(Rejection::Cancelled);
    }
}
