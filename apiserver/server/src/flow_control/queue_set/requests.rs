//! Requests, their queues, and the ways in which a level limits them.

use crate::flow_control::shuffle_sharding::Dealer;
use crate::flow_control::work_estimate::WorkEstimate;
use std::collections::BTreeMap;
use std::time::Duration;

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
    pub(crate) fn waiting_limit(&self) -> usize {
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

pub(crate) type RequestId = u64;

/// A request that arrives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) estimate: WorkEstimate,
    /// Of its flow.
    pub(crate) hash: u64,
    /// It comes from this process itself.
    pub(crate) own: bool,
}

#[derive(Debug)]
pub(crate) struct Request<T> {
    pub(crate) kept: T,
    pub(crate) estimate: WorkEstimate,
    pub(crate) arrival: Duration,
    /// `None` while it waits.
    pub(crate) start: Option<Duration>,
    /// `None` where the level has no queues.
    pub(crate) queue: Option<usize>,
    /// Requests in its queue with it, when it came.
    pub(crate) queue_length: usize,
    /// Its seats are kept, it has ended.
    pub(crate) finished: bool,
}

impl<T> Request<T> {
    pub(super) fn seats(&self) -> usize {
        self.estimate.max_seats() as usize
    }
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Ids grow, so that the first is the oldest.
    pub(crate) waiting: BTreeMap<RequestId, Waiting>,
    pub(crate) waiting_seats: usize,
    pub(crate) waiting_work: f64,
    pub(crate) executing: usize,
    pub(crate) seats_in_use: usize,
    /// R at which the next request begins.
    pub(crate) next_dispatch_r: f64,
}

impl Queue {
    pub(super) fn is_active(&self) -> bool {
        self.executing > 0 || !self.waiting.is_empty()
    }
}

/// The properties of a waiting request that its queue needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    pub(super) seats: usize,
    pub(super) work: f64,
    pub(super) arrival_r: f64,
}

/// Sums over all queues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) waiting: usize,
    pub(crate) executing: usize,
    pub(crate) seats_in_use: usize,
    pub(crate) seats_waiting: usize,
    pub(crate) dispatched: u64,
    pub(crate) rejected: u64,
    pub(crate) timed_out: u64,
    pub(crate) cancelled: u64,
}

#[expect(clippy::cast_precision_loss, reason = "counts of requests are far below 2^52")]
pub(super) fn as_f64(count: usize) -> f64 {
    count as f64
}
