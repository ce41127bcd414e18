//! Keys to work on: each at most once in line, never with two workers, delayed and backed off where asked, and resting
//! after a look that took long: what is added meanwhile waits for the rest's end, all of it together.

use crate::stats::ControllerStats;
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Backoff after the first failure, as upstream's `DefaultTypedControllerRateLimiter`.
pub const BACKOFF_BASE: Duration = Duration::from_millis(5);
/// Longest backoff of a key.
pub const BACKOFF_CEILING: Duration = Duration::from_secs(120);

/// A queue of keys. Cheap to clone; all clones are one queue.
pub struct WorkQueue<K> {
    inner: Arc<Inner<K>>,
}

impl<K> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<K> fmt::Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.inner.state.lock();
        f.debug_struct("WorkQueue")
            .field("ready", &state.ready.len)
            .field("delayed", &state.delayed.len())
            .field("working", &state.working.len())
            .finish()
    }
}

struct Inner<K> {
    runtime: Runtime,
    stats: Arc<ControllerStats>,
    state: Mutex<State<K>>,
    changed: Notify,
}

struct State<K> {
    ready: Shards<K>,
    /// Keys in `ready`, or to be put there once their worker is done, and since when.
    dirty: BTreeMap<K, Duration>,
    /// Keys that have a worker, and since when.
    working: BTreeMap<K, Duration>,
    /// Delayed keys by the time at which they are due; the second number keeps equal times apart.
    delayed: BTreeMap<(Duration, u64), K>,
    due: BTreeMap<K, (Duration, u64)>,
    sequence: u64,
    failures: BTreeMap<K, u32>,
    /// Time until which a key is not queued.
    resting: BTreeMap<K, Duration>,
}

impl<K: Ord + Clone> WorkQueue<K> {
    /// An empty queue on this runtime's clock.
    pub fn new(runtime: Runtime, stats: Arc<ControllerStats>) -> Self {
        let state = State {
            ready: Shards::new(),
            dirty: BTreeMap::new(),
            working: BTreeMap::new(),
            delayed: BTreeMap::new(),
            due: BTreeMap::new(),
            sequence: 0,
            failures: BTreeMap::new(),
            resting: BTreeMap::new(),
        };
        Self {
            inner: Arc::new(Inner {
                runtime,
                stats,
                state: Mutex::new(state),
                changed: Notify::new(),
            }),
        }
    }

    /// Queues keys by a share of theirs, such as the namespace; workers take from the shares in turn.
    pub fn share_by(&self, share: fn(&K) -> &str) {
        self.inner.state.lock().ready.share = share;
    }

    /// Limits the keys of a share that are reconciled at once; the empty share has no limit.
    pub fn limit_shares(&self, workers: usize) {
        self.inner.state.lock().ready.limit = workers;
    }

    /// Adds a key to the queue, unless it is queued.
    pub fn add(&self, key: K) {
        let now = self.inner.runtime.monotonic();
        let added = self.inner.state.lock().add(key, now);
        if added.is_counted() {
            self.inner.stats.added();
        }
        if added.is_news() {
            self.inner.changed.notify_one();
        }
    }

    /// Adds a key after a delay; an earlier time that is already set stays.
    pub fn add_after(&self, key: K, delay: Duration) {
        // Upstream counts whatever is added for later.
        self.inner.stats.retried();
        if delay.is_zero() {
            return self.add(key);
        }
        let at = self.inner.runtime.monotonic() + delay;
        self.inner.state.lock().delay(key, at);
        self.inner.changed.notify_one();
    }

    /// Adds a key after a backoff that doubles with every failure since [`WorkQueue::forget`].
    pub fn add_rate_limited(&self, key: K) {
        let failures = {
            let mut state = self.inner.state.lock();
            let failures = state.failures.entry(key.clone()).or_default();
            *failures += 1;
            *failures
        };
        self.add_after(key, backoff(failures));
    }

    /// Failures of a key since its last reset.
    pub fn failures(&self, key: &K) -> u32 {
        self.inner.state.lock().failures.get(key).copied().unwrap_or(0)
    }

    /// Resets the backoff of a key.
    pub fn forget(&self, key: &K) {
        self.inner.state.lock().failures.remove(key);
    }

    /// Waits for the next key and marks it as being worked on; call [`WorkQueue::done`] after.
    pub async fn next(&self) -> K {
        loop {
            // Before the queue is read: a key that is added in between leaves its permit for this future.
            let changed = self.inner.changed.notified();
            let now = self.inner.runtime.monotonic();
            let taken = self.inner.state.lock().take(now);
            (0..taken.came_due).for_each(|_| self.inner.stats.added());
            if let Some((key, since)) = taken.key {
                self.inner.stats.waited(now.saturating_sub(since));
                return key;
            }
            match taken.due {
                None => changed.await,
                Some(due) => tokio::select! {
                    biased;
                    () = changed => {}
                    () = self.inner.runtime.sleep_until(due) => {}
                },
            }
        }
    }

    /// Ends the work on a key; one that was added meanwhile is queued again.
    pub fn done(&self, key: &K) {
        self.done_with_cooldown(key, Duration::ZERO);
    }

    /// The same as [`WorkQueue::done`], but the key is not queued again before this cooldown is over.
    pub fn done_with_cooldown(&self, key: &K, rest: Duration) {
        let now = self.inner.runtime.monotonic();
        let (since, waiting) = self.inner.state.lock().done(key, now, rest);
        if let Some(since) = since {
            self.inner.stats.worked(now.saturating_sub(since));
        }
        if waiting {
            self.inner.changed.notify_one();
        }
    }

    /// Returns the number of queued keys, the seconds of all reconciles in progress together, and those of the longest.
    pub(crate) fn figures(&self) -> (usize, f64, f64) {
        let now = self.inner.runtime.monotonic();
        let state = self.inner.state.lock();
        let running = state
            .working
            .values()
            .map(|since| now.saturating_sub(*since).as_secs_f64());
        let (sum, longest) = running.fold((0.0, 0.0), |(sum, longest), own| (sum + own, own.max(longest)));
        (state.dirty.len(), sum, longest)
    }

    /// Number of queued keys.
    pub fn len(&self) -> usize {
        self.inner.state.lock().ready.len
    }

    /// Reports whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reports whether no key is queued, delayed or being reconciled.
    pub fn is_idle(&self) -> bool {
        let state = self.inner.state.lock();
        state.ready.len == 0 && state.working.is_empty() && state.delayed.is_empty()
    }
}

/// Keys in line: in one, unless shares of them take turns.
struct Shards<K> {
    share: fn(&K) -> &str,
    /// Shares whose line is not empty, the next first.
    turns: VecDeque<String>,
    lines: BTreeMap<String, VecDeque<K>>,
    len: usize,
    /// Keys that have a worker, by share.
    working: BTreeMap<String, usize>,
    /// The most that a share may have.
    limit: usize,
}

impl<K> Shards<K> {
    fn new() -> Self {
        Self {
            share: |_| "",
            turns: VecDeque::new(),
            lines: BTreeMap::new(),
            len: 0,
            working: BTreeMap::new(),
            limit: usize::MAX,
        }
    }

    fn push_back(&mut self, key: K) {
        self.len += 1;
        let share = (self.share)(&key);
        if let Some(line) = self.lines.get_mut(share) {
            return line.push_back(key);
        }
        let share = share.to_owned();
        self.turns.push_back(share.clone());
        self.lines.insert(share, VecDeque::from([key]));
    }

    fn pop_front(&mut self) -> Option<K> {
        let free = |share: &String| {
            let working = self.working.get(share).copied().unwrap_or_default();
            share.is_empty() || working < self.limit
        };
        // Few are passed over: each of them has as many workers as it may have.
        let at = self.turns.iter().position(free)?;
        let share = self.turns.remove(at)?;
        let line = self.lines.get_mut(&share)?;
        let key = line.pop_front()?;
        self.len -= 1;
        *self.working.entry(share.clone()).or_default() += 1;
        if line.is_empty() {
            self.lines.remove(&share);
        } else {
            self.turns.push_back(share);
        }
        // Behind all others: a namespace with a thousand keys gets one reconcile in each round.
        Some(key)
    }

    /// The worker of a key is done.
    fn done(&mut self, key: &K) {
        let share = (self.share)(key);
        let Some(working) = self.working.get_mut(share) else {
            return;
        };
        *working -= 1;
        if *working == 0 {
            self.working.remove(share);
        }
    }
}

/// Result of adding a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Added {
    /// A worker may take it.
    InLine,
    /// It is in line once its worker is done.
    Behind,
    /// It is in line after its rest.
    Delayed,
    /// It was there.
    Nothing,
}

impl Added {
    /// Reports whether upstream's `workqueue_adds_total` counts it: the key was not queued yet.
    fn is_counted(self) -> bool {
        matches!(self, Self::InLine | Self::Behind)
    }

    /// Reports whether a waiting worker has to be woken.
    fn is_news(self) -> bool {
        matches!(self, Self::InLine | Self::Delayed)
    }
}

/// Result of looking for a key.
struct Taken<K> {
    /// With the time since which it was in line.
    key: Option<(K, Duration)>,
    /// Delayed keys that came in line.
    came_due: usize,
    /// The time at which the first delayed key is due.
    due: Option<Duration>,
}

impl<K: Ord + Clone> State<K> {
    fn add(&mut self, key: K, now: Duration) -> Added {
        if let Some(until) = self.resting.get(&key).copied().filter(|until| *until > now) {
            return if self.delay(key, until) {
                Added::Delayed
            } else {
                Added::Nothing
            };
        }
        if self.dirty.contains_key(&key) {
            return Added::Nothing;
        }
        self.dirty.insert(key.clone(), now);
        if self.working.contains_key(&key) {
            // One worker per key: `done` queues it again, so that no change during a reconcile is lost.
            return Added::Behind;
        }
        self.ready.push_back(key);
        Added::InLine
    }

    /// Delays a key and reports whether it was not due by then.
    fn delay(&mut self, key: K, at: Duration) -> bool {
        if let Some(known) = self.due.get(&key).copied() {
            if known.0 <= at {
                return false;
            }
            self.delayed.remove(&known);
        }
        self.sequence += 1;
        let due = (at, self.sequence);
        self.delayed.insert(due, key.clone());
        self.due.insert(key, due);
        true
    }

    fn take(&mut self, now: Duration) -> Taken<K> {
        let mut came_due = 0;
        while let Some(entry) = self.delayed.first_entry().filter(|entry| entry.key().0 <= now) {
            let key = entry.remove();
            self.due.remove(&key);
            came_due += usize::from(self.add(key, now).is_counted());
        }
        let key = self.ready.pop_front().map(|key| {
            let since = self.dirty.remove(&key).unwrap_or(now);
            self.working.insert(key.clone(), now);
            (key, since)
        });
        Taken {
            key,
            came_due,
            due: self.delayed.first_key_value().map(|(due, _)| due.0),
        }
    }

    /// Ends a key's work, and returns when that began, and whether a waiting worker has to be woken.
    fn done(&mut self, key: &K, now: Duration, rest: Duration) -> (Option<Duration>, bool) {
        let since = self.working.remove(key);
        if since.is_some() {
            self.ready.done(key);
        }
        // A share that had all its workers may have another now.
        let waiting = self.ready.len > 0;
        // The map is bounded by the keys that were worked on within the longest cooldown.
        self.resting.retain(|_, until| *until > now);
        if rest.is_zero() {
            let again = self.dirty.contains_key(key);
            if again {
                self.ready.push_back(key.clone());
            }
            return (since, again || waiting);
        }
        self.resting.insert(key.clone(), now + rest);
        let delayed = self.dirty.remove(key).is_some() && self.delay(key.clone(), now + rest);
        (since, delayed || waiting)
    }
}

/// 5 ms, 10 ms, 20 ms … up to the ceiling.
fn backoff(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(20);
    BACKOFF_BASE.saturating_mul(1 << doublings).min(BACKOFF_CEILING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_runtime::Simulation;

    fn queue(runtime: &Runtime) -> WorkQueue<u32> {
        WorkQueue::new(runtime.clone(), Arc::default())
    }

    #[test]
    fn queue_key_is_present_once_and_has_one_worker() {
        let simulation = Simulation::new(1);
        let queue = queue(&simulation.runtime());
        simulation.run(async move {
            queue.add(1);
            queue.add(1);
            queue.add(2);
            assert_eq!(queue.len(), 2);
            assert_eq!(queue.next().await, 1);
            queue.add(1);
            assert_eq!(queue.next().await, 2);
            assert!(queue.is_empty(), "key 1 waits for its worker");
            queue.done(&1);
            assert_eq!(queue.next().await, 1);
        });
    }

    #[test]
    fn queue_shards_take_turns() {
        let simulation = Simulation::new(1);
        let queue = WorkQueue::<&'static str>::new(simulation.runtime(), Arc::default());
        queue.share_by(|key| &key[..1]);
        simulation.run(async move {
            let all = ["a1", "a2", "a3", "b1", "b2", "c1"];
            all.iter().for_each(|key| queue.add(key));
            assert_eq!(queue.len(), 6);
            let mut order = Vec::new();
            for _ in all {
                let key = queue.next().await;
                // A share that goes on is behind the others each time.
                if key == "a1" {
                    queue.add("a1");
                }
                queue.done(&key);
                order.push(key);
            }
            assert_eq!(order, ["a1", "b1", "c1", "a2", "b2", "a3"]);
            assert_eq!(queue.next().await, "a1");
            queue.done(&"a1");
            assert!(queue.is_idle());
        });
    }

    #[test]
    fn queue_shard_has_no_more_workers_than_its_limit() {
        let simulation = Simulation::new(1);
        let queue = WorkQueue::<&'static str>::new(simulation.runtime(), Arc::default());
        queue.share_by(|key| key.split_once('/').map_or("", |(share, _)| share));
        queue.limit_shares(2);
        simulation.run(async move {
            ["a/1", "a/2", "a/3", "a/4", "b/1", "x", "y", "z"]
                .iter()
                .for_each(|key| queue.add(key));
            let mut order = Vec::new();
            for _ in 0..6 {
                order.push(queue.next().await);
            }
            assert_eq!(order, ["a/1", "b/1", "x", "a/2", "y", "z"]);
            assert_eq!(queue.len(), 2);
            assert!(futures::FutureExt::now_or_never(queue.next()).is_none());
            queue.done(&"a/2");
            assert_eq!(queue.next().await, "a/3");
            assert!(futures::FutureExt::now_or_never(queue.next()).is_none());
            queue.done(&"a/1");
            assert_eq!(queue.next().await, "a/4");
        });
    }

    #[test]
    fn queue_key_in_cooldown_is_present_once_and_not_early() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        let queue = queue(&runtime);
        simulation.run(async move {
            let rest = Duration::from_millis(40);
            queue.add(1);
            assert_eq!(queue.next().await, 1);
            queue.add(1);
            queue.done_with_cooldown(&1, rest);
            queue.add(1);
            queue.add(2);
            assert_eq!(queue.next().await, 2, "others do not wait for it");
            queue.done(&2);
            queue.add_after(1, rest / 2);
            assert_eq!(queue.next().await, 1);
            assert!(runtime.monotonic() >= rest);
            queue.done(&1);
            assert!(queue.is_idle());
            queue.add(1);
            assert_eq!(queue.len(), 1, "it has rested");
        });
    }

    #[test]
    fn delays_keep_the_earliest_time_and_failures_double_it() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        let queue = queue(&runtime);
        simulation.run(async move {
            queue.add_after(1, Duration::from_secs(5));
            queue.add_after(1, Duration::from_secs(9));
            queue.add_after(2, Duration::from_secs(7));
            queue.add_after(2, Duration::from_secs(1));
            assert_eq!(queue.next().await, 2);
            assert!(runtime.monotonic() < Duration::from_secs(5));
            assert_eq!(queue.next().await, 1);
            queue.done(&1);
            queue.done(&2);
            assert!(queue.is_idle());
        });
        assert_eq!(backoff(1), BACKOFF_BASE);
        assert_eq!(backoff(4), BACKOFF_BASE * 8);
        assert_eq!(backoff(4_000_000), BACKOFF_CEILING);
    }
}
