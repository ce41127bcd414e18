//! The requests of one priority level: executing, or waiting in queues that are served fairly.
//!
//! Fair queuing by virtual time, as upstream's `queueset` (its KEP 1040 has the reasoning). Virtual time R is what a backlogged
//! queue would have been served in seat-seconds if each active queue had an equal share. A queue remembers the R at which its
//! next request begins to be served; the queue whose oldest request would end first is served first. The work of a request
//! is estimated when it is dispatched and corrected when it has finished.
//!
//! Here is no clock: every step gets the time. Each costs the logarithm of the requests and queues that wait.

use super::seat_demand::Integrator;
use super::shuffle_sharding::Dealer;
use super::utilization::LevelUtilization;
use super::work_estimate::{ESTIMATED_SERVICE_DURATION, WorkEstimate};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Requests of this process itself wait up to this number in a level, beyond the limit of queues: a component could only
/// repeat a request that got a 429.
const MAX_OWN_WAITING: usize = 4_096;

pub(crate) type RequestId = u64;

/// The way in which a level limits requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queuing {
    /// Everything is executed at once.
    Exempt,
    /// Requests that find no seats are rejected.
    Reject,
    Queue {
        queues: usize,
        dealer: Dealer,
        queue_length_limit: usize,
    },
}

impl Queuing {
    /// Requests that may wait.
    pub(super) fn waiting_limit(&self) -> usize {
        match self {
            Self::Exempt | Self::Reject => 0,
            Self::Queue {
                queues,
                queue_length_limit,
                ..
            } => queues * queue_length_limit,
        }
    }
}

/// Upstream's reasons of rejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rejection {
    ConcurrencyLimit,
    QueueFull,
    TimeOut,
    Cancelled,
}

impl Rejection {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::ConcurrencyLimit => "concurrency-limit",
            Self::QueueFull => "queue-full",
            // Upstream knows one reason for all that leave a queue, a client that goes among them.
            Self::TimeOut | Self::Cancelled => "time-out",
        }
    }
}

/// A request that arrives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) estimate: WorkEstimate,
    /// Of its flow.
    pub(super) hash: u64,
    /// It comes from this process itself.
    pub(super) own: bool,
}

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

/// Sums over all queues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) waiting: usize,
    pub(super) executing: usize,
    pub(super) seats_in_use: usize,
    pub(super) seats_waiting: usize,
    pub(super) dispatched: u64,
    pub(super) rejected: u64,
    pub(super) timed_out: u64,
    pub(super) cancelled: u64,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Ids grow, so that the first is the oldest.
    pub(super) waiting: BTreeMap<RequestId, Waiting>,
    pub(super) waiting_seats: usize,
    pub(super) waiting_work: f64,
    pub(super) executing: usize,
    pub(super) seats_in_use: usize,
    /// R at which the next request begins.
    pub(super) next_dispatch_r: f64,
}

/// The properties of a waiting request that its queue needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    seats: usize,
    work: f64,
    arrival_r: f64,
}

impl Queue {
    fn is_active(&self) -> bool {
        self.executing > 0 || !self.waiting.is_empty()
    }
}

#[derive(Debug)]
pub(super) struct Request<T> {
    pub(super) kept: T,
    pub(super) estimate: WorkEstimate,
    pub(super) arrival: Duration,
    /// `None` while it waits.
    pub(super) start: Option<Duration>,
    /// `None` where the level has no queues.
    pub(super) queue: Option<usize>,
    /// Requests in its queue with it, when it came.
    pub(super) queue_length: usize,
    /// Its seats are kept, it has ended.
    pub(super) finished: bool,
}

impl<T> Request<T> {
    fn seats(&self) -> usize {
        self.estimate.max_seats() as usize
    }
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
        let Arrival { estimate, hash, own } = arrival;
        let queue = match self.queuing {
            Queuing::Exempt => None,
            Queuing::Reject if self.has_room_for(estimate.max_seats() as usize) => None,
            Queuing::Reject => return Err(self.rejected(Rejection::ConcurrencyLimit)),
            Queuing::Queue {
                dealer,
                queue_length_limit,
                ..
            } => {
                let queue = self.shortest_of_hand(dealer, hash);
                let is_full = self.queues[queue].waiting.len() >= queue_length_limit;
                let is_full = is_full && !(own && self.totals.waiting < MAX_OWN_WAITING);
                if is_full && self.totals.seats_in_use >= self.concurrency_limit {
                    return Err(self.rejected(Rejection::QueueFull));
                }
                Some(queue)
            }
        };
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

    /// The queue with the least work of those that the flow was dealt; among equals they take turns.
    fn shortest_of_hand(&mut self, dealer: Dealer, hash: u64) -> usize {
        let (mut hand, mut size) = ([0usize; 16], 0);
        dealer.deal(hash, |card| {
            hand[size] = card;
            size += 1;
        });
        let offset = self.enqueues % size;
        self.enqueues = self.enqueues.wrapping_add(1);
        let in_turn = hand[offset..size].iter().chain(&hand[..offset]);
        let work = |queue: &usize| self.queues[*queue].waiting_work;
        let mut best = hand[offset];
        for queue in in_turn {
            if work(queue) < work(&best) {
                best = *queue;
            }
        }
        best
    }

    /// Makes as many queues as configured; further ones go once they are empty.
    fn fit_queues(&mut self) {
        let wanted = match self.queuing {
            Queuing::Queue { queues, .. } => queues,
            Queuing::Exempt | Queuing::Reject => 0,
        };
        if self.queues.len() < wanted {
            self.queues.resize_with(wanted, Queue::default);
        }
        while self.queues.len() > wanted
            && self
                .queues
                .last()
                .is_some_and(|queue| !queue.is_active() && queue.seats_in_use == 0)
        {
            self.queues.pop();
        }
    }

    fn sync_time(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.last_time);
        self.last_time = self.last_time.max(now);
        if self.active_queues > 0 {
            let wanted = self.totals.seats_in_use + self.totals.seats_waiting;
            let served = as_f64(wanted.min(self.concurrency_limit));
            self.current_r += served / as_f64(self.active_queues) * elapsed.as_secs_f64();
        }
    }

    fn has_room_for(&self, seats: usize) -> bool {
        match self.queuing {
            Queuing::Exempt => true,
            // What is wider than the level gets all of it.
            _ if seats > self.concurrency_limit => self.totals.executing == 0,
            _ => self.totals.seats_in_use + seats <= self.concurrency_limit,
        }
    }

    fn enqueue(&mut self, id: RequestId, queue: usize, estimate: WorkEstimate) {
        let own = &mut self.queues[queue];
        if !own.is_active() {
            // A queue that was idle has no credit from then.
            own.next_dispatch_r = self.current_r;
            self.active_queues += 1;
        }
        let waiting = Waiting {
            seats: estimate.max_seats() as usize,
            work: estimate.total_work(),
            arrival_r: self.current_r,
        };
        own.waiting.insert(id, waiting);
        own.waiting_seats += waiting.seats;
        own.waiting_work += waiting.work;
        self.waiting_queues.insert(queue);
        self.totals.waiting += 1;
        self.totals.seats_waiting += waiting.seats;
    }

    fn dequeue(&mut self, id: RequestId, queue: usize) {
        let own = &mut self.queues[queue];
        let Some(waited) = own.waiting.remove(&id) else {
            return;
        };
        own.waiting_seats -= waited.seats;
        own.waiting_work -= waited.work;
        if own.waiting.is_empty() {
            // What rounding left.
            own.waiting_work = 0.0;
            self.waiting_queues.remove(&queue);
        }
        self.totals.waiting -= 1;
        self.totals.seats_waiting -= waited.seats;
    }

    fn dispatch_all(&mut self, now: Duration, mut dispatched: impl FnMut(&mut Request<T>)) {
        while self.totals.waiting > 0 && self.totals.seats_in_use < self.concurrency_limit {
            let Some((queue, id)) = self.next_to_dispatch() else {
                return;
            };
            self.dequeue(id, queue);
            let limit = u32::try_from(self.concurrency_limit).unwrap_or(u32::MAX);
            if let Some(request) = self.requests.get_mut(&id) {
                request.estimate = request.estimate.narrowed_to(limit);
                let own = &mut self.queues[queue];
                own.executing += 1;
                own.seats_in_use += request.estimate.max_seats() as usize;
                own.next_dispatch_r += request.estimate.total_work();
            }
            self.robin_index = queue;
            self.execute(id, now, &mut dispatched);
            self.bound_next_dispatch(queue);
        }
    }

    /// The oldest request of the queue whose oldest would end first, if there are seats for it.
    fn next_to_dispatch(&mut self) -> Option<(usize, RequestId)> {
        let after = self.waiting_queues.range(self.robin_index + 1..);
        let in_turn = after.chain(self.waiting_queues.range(..=self.robin_index));
        let mut best: Option<(f64, usize)> = None;
        for queue in in_turn {
            let own = &self.queues[*queue];
            let Some((_, oldest)) = own.waiting.first_key_value() else {
                continue;
            };
            let virtual_finish = own.next_dispatch_r + oldest.work;
            if best.is_none_or(|(least, _)| virtual_finish < least) {
                best = Some((virtual_finish, *queue));
            }
        }
        let (_, queue) = best?;
        let (id, oldest) = self.queues[queue].waiting.first_key_value()?;
        let (id, seats) = (*id, oldest.seats);
        let has_room = self.has_room_for(seats);
        if !has_room {
            self.unaccommodated = Some(id);
        }
        has_room.then_some((queue, id))
    }

    fn execute(&mut self, id: RequestId, now: Duration, mut dispatched: impl FnMut(&mut Request<T>)) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        request.start = Some(now);
        self.totals.executing += 1;
        self.totals.seats_in_use += request.seats();
        self.totals.dispatched += 1;
        dispatched(request);
        self.note_demand(now);
    }

    fn release_seats(&mut self, id: RequestId, now: Duration) {
        let Some(request) = self.requests.remove(&id) else {
            return;
        };
        let seats = request.seats();
        self.totals.seats_in_use -= seats;
        if let Some(queue) = request.queue {
            self.queues[queue].seats_in_use -= seats;
            self.fit_queues();
        }
        self.note_demand(now);
    }

    fn note_inactive(&mut self, queue: usize) {
        if !self.queues[queue].is_active() {
            self.active_queues -= 1;
        }
    }

    /// No request is served as if it had come before it came.
    fn bound_next_dispatch(&mut self, queue: usize) {
        let Some(own) = self.queues.get_mut(queue) else {
            return;
        };
        if let Some((_, oldest)) = own.waiting.first_key_value() {
            own.next_dispatch_r = own.next_dispatch_r.max(oldest.arrival_r);
        }
    }

    fn note_demand(&mut self, now: Duration) {
        let seats = self.totals.seats_in_use + self.totals.seats_waiting;
        self.demand.set(as_f64(seats), now);
        self.utilization.note(&self.totals, now);
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of requests are far below 2^52")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
#[path = "queue_set_tests.rs"]
mod tests;
