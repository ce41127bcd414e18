//! The order of service: fair queuing in virtual time.

use super::QueueSet;
use super::requests::{Queue, Queuing, Request, RequestId, Waiting, as_f64};
use crate::flow_control::shuffle_sharding::Dealer;
use crate::flow_control::work_estimate::WorkEstimate;
use std::time::Duration;

impl<T> QueueSet<T> {
    pub(super) fn dispatch_all(&mut self, now: Duration, mut dispatched: impl FnMut(&mut Request<T>)) {
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

    /// No request is served as if it had come before it came.
    pub(super) fn bound_next_dispatch(&mut self, queue: usize) {
        let Some(own) = self.queues.get_mut(queue) else {
            return;
        };
        if let Some((_, oldest)) = own.waiting.first_key_value() {
            own.next_dispatch_r = own.next_dispatch_r.max(oldest.arrival_r);
        }
    }

    pub(super) fn sync_time(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.last_time);
        self.last_time = self.last_time.max(now);
        if self.active_queues > 0 {
            let wanted = self.totals.seats_in_use + self.totals.seats_waiting;
            let served = as_f64(wanted.min(self.concurrency_limit));
            self.current_r += served / as_f64(self.active_queues) * elapsed.as_secs_f64();
        }
    }

    /// The queue with the least work of those that the flow was dealt; among equals they take turns.
    pub(super) fn shortest_of_hand(&mut self, dealer: Dealer, hash: u64) -> usize {
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

    pub(super) fn enqueue(&mut self, id: RequestId, queue: usize, estimate: WorkEstimate) {
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

    pub(super) fn dequeue(&mut self, id: RequestId, queue: usize) {
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

    pub(super) fn has_room_for(&self, seats: usize) -> bool {
        match self.queuing {
            Queuing::Exempt => true,
            // What is wider than the level gets all of it.
            _ if seats > self.concurrency_limit => self.totals.executing == 0,
            _ => self.totals.seats_in_use + seats <= self.concurrency_limit,
        }
    }

    pub(super) fn execute(
        &mut self,
        id: RequestId,
        now: Duration,
        mut dispatched: impl FnMut(&mut Request<T>),
    ) {
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

    pub(super) fn release_seats(&mut self, id: RequestId, now: Duration) {
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

    pub(super) fn note_inactive(&mut self, queue: usize) {
        if !self.queues[queue].is_active() {
            self.active_queues -= 1;
        }
    }

    /// Makes as many queues as configured; further ones go once they are empty.
    pub(super) fn fit_queues(&mut self) {
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
}
