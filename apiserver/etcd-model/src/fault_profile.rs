//! Faults of a model of etcd, within etcd's guarantees: members that lag, messages that are lost, streams that break.

use machinery_runtime::Runtime;
use std::time::Duration;

/// Rates and bounds of the faults that clients of an [`Etcd`](crate::Etcd) meet.
#[derive(Debug, Clone)]
pub struct FaultProfile {
    /// Members; each applies the one order of commands in its own time and serves some of the requests.
    pub members: usize,
    /// The longest a member rests before it applies what is there.
    pub lag: Duration,
    /// The longest a request, an answer or a message of a stream is under way.
    pub delay: Duration,
    /// One in so many requests, answers and messages is the last on its connection; never when zero.
    pub break_one_in: u64,
    /// The longest a member, always a minority, is cut off from the others; never when zero.
    pub partition: Duration,
    /// Messages that wait for a stream before its watcher is a victim (128 in etcd).
    pub queue: usize,
    /// Messages under way to a reader that takes none.
    pub window: usize,
    /// Revisions sent at once to a watcher that is behind (1000 in etcd).
    pub batch_revisions: usize,
    /// The longest time between two rounds for watchers that are behind (1 s in etcd).
    pub rounds: Duration,
    /// One round in so many sends progress to those in step; none when zero (one in ten minutes in etcd).
    pub progress_one_in: u64,
    /// One round in so many restores a member from a snapshot: none of its watchers is in step then, and one that was sent
    /// nothing but progress for long may be abandoned. Never when zero.
    pub restore_one_in: u64,
}

impl FaultProfile {
    /// One member, nothing lost, etcd's own sizes.
    pub fn none() -> Self {
        Self {
            members: 1,
            lag: Duration::ZERO,
            delay: Duration::ZERO,
            break_one_in: 0,
            partition: Duration::ZERO,
            queue: 128,
            window: 16,
            batch_revisions: 1000,
            rounds: Duration::from_millis(100),
            progress_one_in: 0,
            restore_one_in: 0,
        }
    }

    /// Everything late and in small pieces, nothing lost.
    pub fn rough(runtime: &Runtime) -> Self {
        let below = |count: u64| runtime.random_u64() % count;
        let size = |count: u64| usize::try_from(1 + below(count)).unwrap_or(1);
        Self {
            members: [1, 3][size(2) - 1],
            lag: Duration::from_micros(below(4_000)),
            delay: Duration::from_micros(below(2_000)),
            queue: size(4),
            window: size(3),
            batch_revisions: size(5),
            rounds: Duration::from_micros(500 + below(10_000)),
            progress_one_in: 1 + below(8),
            ..Self::none()
        }
    }

    /// Rough, and connections break, and now and then a member is cut off or restored.
    pub fn stormy(runtime: &Runtime) -> Self {
        let below = |count: u64| runtime.random_u64() % count;
        Self {
            break_one_in: 10 + below(200),
            partition: Duration::from_millis(below(60)),
            restore_one_in: below(60),
            ..Self::rough(runtime)
        }
    }
}

/// The faults as it is felt: everything drawn from the runtime, so from the seed.
#[derive(Debug, Clone)]
pub(crate) struct FaultInjector {
    pub(crate) runtime: Runtime,
    pub(crate) faults: FaultProfile,
}

impl FaultInjector {
    pub(crate) fn below(&self, count: u64) -> u64 {
        self.runtime.random_u64() % count.max(1)
    }

    /// Draws whether this is the one in so many; never if `count` is zero.
    pub(crate) fn one_in(&self, count: u64) -> bool {
        count != 0 && self.below(count) == 0
    }

    pub(crate) fn breaks(&self) -> bool {
        self.one_in(self.faults.break_one_in)
    }

    pub(crate) async fn delay(&self, most: Duration) {
        let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        if micros > 0 {
            self.runtime
                .sleep(Duration::from_micros(self.below(micros)))
                .await;
        }
    }
}
