//! The requests of one priority level: executing, or waiting in queues that are served fairly.
//!
//! Fair queuing by virtual time, as upstream's `queueset` (its KEP 1040 has the reasoning). Virtual time R is what a backlogged
//! queue would have been served in seat-seconds if each active queue had an equal share. A queue remembers the R at which its
//! next request begins to be served; the queue whose oldest request would end first is served first. The work of a request
//! is estimated when it is dispatched and corrected when it has finished.
//!
//! Here is no clock: every step gets the time. Each costs the logarithm of the requests and queues that wait. [`requests`] are
//! the parts, [`service`] the order in which queues are served.

mod requests;
mod service;
#[cfg(test)]
mod tests;

pub(crate) use requests::{Arrival, Queuing, Rejection, Request, RequestId, Totals};

use super::seat_demand::Integrator;
use super::utilization::LevelUtilization;
use super::work_estimate::ESTIMATED_SERVICE_DURATION;
use requests::{Queue, as_f64};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Requests of this process itself wait up to this number in a level, beyond the limit of queues: a component could only
/// repeat a request that got a 429.
const MAX_OWN_WAITING: usize = 4_096;

/// See the module. `T` is what the owner keeps of a request.
#[derive(Debug)]
pub(super) struct QueueSet<T> {
    queuing: Queuing,
    concurrency_limit: usize,
    queues: Vec<Queue>,
    /// Queues in which requests wait.
    waiting_queues: BTreeSet<usize>,
    /// Number of queues with a request, waiting or executing.
    active_queues: usize,
    requests: BTreeMap<RequestId, Request<T>>,
    last_id: RequestId,
    /// Virtual time, in seat-seconds.
    current_r: f64,
    last_time: Duration,
    /// The queue that was served last: among equals they take turns.
    robin_index: usize,
    enqueues: usize,
    totals: Totals,
    /// The request that was next and found too few seats, until it is counted.
    unaccommodated: Option<RequestId>,
    demand: Integrator,
    utilization: LevelUtilization,
}

impl<T> QueueSet<T> {
    pub(super) fn new(queuing: Queuing, concurrency_limit: usize, now: Duration) -> Self {
        let mut set = Self {
            queuing,
            concurrency_limit,
            queues: Vec::new(),
            waiting_queues: BTreeSet::new(),
            active_queues: 0,
            requests: BTreeMap::new(),
            last_id: 0,
            current_r: 0.0,
            last_time: now,
            robin_index: 0,
            enqueues: 0,
            totals: Totals::default(),
            unaccommodated: None,
            demand: Integrator::new(now),
            utilization: LevelUtilization::new(now),
        };
        set.fit_queues();
        set.note_limits(concurrency_limit, now);
        set
    }

    /// Another configuration, or another limit. Calls `dispatched` for each request that begins thereby.
    pub(super) fn configure(
        &mut self,
        queuing: Queuing,
        concurrency_limit: usize,
        now: Duration,
        dispatched: impl FnMut(&mut Request<T>),
    ) {
        self.sync_time(now);
        self.queuing = queuing;
        self.concurrency_limit = concurrency_limit;
        self.fit_queues();
        self.dispatch_all(now, dispatched);
    }

    pub(super) fn is_exempt(&self) -> bool {
        self.queuing == Queuing::Exempt
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    pub(super) fn is_idle(&self) -> bool {
        self.totals.waiting == 0 && self.totals.executing == 0
    }

    pub(super) fn queues(&self) -> &[Queue] {
        &self.queues
    }

    pub(super) fn requests(&self) -> &BTreeMap<RequestId, Request<T>> {
        &self.requests
    }

    /// The request whose turn it was last and for which there were too few seats; logged once.
    pub(super) fn take_unaccommodated(&mut self) -> Option<&Request<T>> {
        let id = self.unaccommodated.take()?;
        self.requests.get(&id)
    }

    pub(super) fn request_mut(&mut self, id: RequestId) -> Option<&mut Request<T>> {
        self.requests.get_mut(&id)
    }

    pub(super) fn demand(&mut self) -> &mut Integrator {
        &mut self.demand
    }

    pub(super) fn utilization(&mut self) -> &mut LevelUtilization {
        &mut self.utilization
    }

    /// The limits that utilisation is measured by; `seats` stands for a level that has none.
    pub(super) fn note_limits(&mut self, seats: usize, now: Duration) {
        let waiting = self.queuing.waiting_limit();
        self.utilization.limits(waiting, seats, now);
    }

    pub(super) fn current_r(&self) -> f64 {
        self.current_r
    }

    /// Takes in a request, which executes or waits afterwards, as [`Request::start`] says.
    pub(super) fn start(
        &mut self,
        arrival: Arrival,
        kept: T,
        now: Duration,
        dispatched: impl FnMut(&mut Request<T>),
    ) -> Result<RequestId, Rejection> {
        self.sync_time(now);
        let estimate = arrival.estimate;
        let queue = self.place(arrival).map_err(|why| self.rejected(why))?;
        self.last_id += 1;
        let id = self.last_id;
        let request = Request {
            kept,
            estimate,
            arrival: now,
            start: None,
            queue,
            queue_length: 0,
            finished: false,
        };
        self.requests.insert(id, request);
        match queue {
            None => self.execute(id, now, dispatched),
            Some(queue) => {
                self.enqueue(id, queue, estimate);
                if let Some(request) = self.requests.get_mut(&id) {
                    request.queue_length = self.queues[queue].waiting.len();
                }
                self.note_demand(now);
                // First: a queue that always executes and never waits is behind, and would go ahead of all others.
                self.bound_next_dispatch(queue);
                self.dispatch_all(now, dispatched);
            }
        }
        Ok(id)
    }

    /// The queue of a request that arrives; `None` where the level has no queues.
    fn place(&mut self, arrival: Arrival) -> Result<Option<usize>, Rejection> {
        let Arrival { estimate, hash, own } = arrival;
        match self.queuing {
            Queuing::Exempt => Ok(None),
            Queuing::Reject if self.has_room_for(estimate.max_seats() as usize) => Ok(None),
            Queuing::Reject => Err(Rejection::ConcurrencyLimit),
            Queuing::Queue {
                dealer,
                queue_length_limit,
                ..
            } => {
                let queue = self.shortest_of_hand(dealer, hash);
                let is_full = self.queues[queue].waiting.len() >= queue_length_limit;
                let is_full = is_full && !(own && self.totals.waiting < MAX_OWN_WAITING);
                if is_full && self.totals.seats_in_use >= self.concurrency_limit {
                    return Err(Rejection::QueueFull);
                }
                Ok(Some(queue))
            }
        }
    }

    /// A request has been executed. Answers how long its seats are kept; [`Self::release`] is due then. `None`: they are free.
    pub(super) fn finish(
        &mut self,
        id: RequestId,
        now: Duration,
        dispatched: impl FnMut(&mut Request<T>),
    ) -> Option<Duration> {
        self.sync_time(now);
        let request = self.requests.get_mut(&id)?;
        request.finished = true;
        let took = now.saturating_sub(request.start.unwrap_or(now));
        let (estimate, queue) = (request.estimate, request.queue);
        self.totals.executing -= 1;
        self.note_demand(now);
        if let Some(queue) = queue {
            // What was estimated is corrected.
            let difference = ESTIMATED_SERVICE_DURATION.as_secs_f64() - took.as_secs_f64();
            let own = &mut self.queues[queue];
            own.executing -= 1;
            own.next_dispatch_r -= f64::from(estimate.initial_seats) * difference;
            self.note_inactive(queue);
            self.bound_next_dispatch(queue);
        }
        if estimate.additional_latency.is_zero() {
            self.release_seats(id, now);
        }
        self.dispatch_all(now, dispatched);
        Some(estimate.additional_latency).filter(|latency| !latency.is_zero())
    }

    /// The seats of a finished request are no longer kept.
    pub(super) fn release(&mut self, id: RequestId, now: Duration, dispatched: impl FnMut(&mut Request<T>)) {
        self.sync_time(now);
        self.release_seats(id, now);
        self.dispatch_all(now, dispatched);
    }

    /// A request waits no longer; `false` where it executes already.
    pub(super) fn cancel(&mut self, id: RequestId, why: Rejection, now: Duration) -> bool {
        self.sync_time(now);
        let Some(queue) = self.requests.get(&id).filter(|request| request.start.is_none()) else {
            return false;
        };
        let queue = queue.queue;
        if let Some(queue) = queue {
            self.dequeue(id, queue);
            self.note_inactive(queue);
            self.bound_next_dispatch(queue);
        }
        self.requests.remove(&id);
        self.note_demand(now);
        self.rejected(why);
        true
    }

    /// An executing request ends before its work has begun: its seats are not kept afterwards.
    pub(super) fn forget_final_work(&mut self, id: RequestId) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        let unspent = request.estimate.final_work();
        request.estimate.additional_latency = Duration::ZERO;
        if let Some(queue) = request.queue {
            self.queues[queue].next_dispatch_r -= unspent;
        }
    }

    fn rejected(&mut self, why: Rejection) -> Rejection {
        self.totals.rejected += 1;
        match why {
            Rejection::TimeOut => self.totals.timed_out += 1,
            Rejection::Cancelled => self.totals.cancelled += 1,
            Rejection::ConcurrencyLimit | Rejection::QueueFull => {}
        }
        why
    }

    fn note_demand(&mut self, now: Duration) {
        let seats = self.totals.seats_in_use + self.totals.seats_waiting;
        self.demand.set(as_f64(seats), now);
        self.utilization.note(&self.totals, now);
    }
}
