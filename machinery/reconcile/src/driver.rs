//! Waits for caches, hands keys to a reconciler, at most so many at a time, and backs off on errors.
//!
//! One task drives all reconciliations of a controller: an idle controller costs one small task, however many may run.
//!
//! A look at an object that has ten thousand others costs milliseconds, and each of these others wakes it. So a key
//! rests after a look that took long, in proportion: however many events there are, looking at one key takes no more
//! than a fixed part of a core. What is cheap to look at does not rest.

use crate::queue::WorkQueue;
use crate::stats::{ControllerStats, DEPTH, LONGEST, UNFINISHED};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use machinery_client::{ClientError, Informer, Projection, Subscription};
use machinery_meta::ObjectKey;
use machinery_runtime::Runtime;
use machinery_runtime::metrics::{Family, Reading};
use parking_lot::Mutex;
use std::fmt::{self, Debug};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Outcome of a reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Until something changes there is nothing to do.
    Done,
    /// There is, after this time.
    RequeueAfter(Duration),
    /// Nothing, and whatever changes within this time is looked at after it, all together: the look was dear to others.
    Rest(Duration),
}

/// Reason why a reconcile is retried.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// A request failed while doing this.
    #[error("{doing}")]
    Request {
        /// Such as "creating a pod".
        doing: String,
        /// Cause.
        #[source]
        source: ClientError,
    },
    /// The object says something that cannot be acted on.
    #[error("{0}")]
    Unusable(String),
    /// Several things failed; this was the first.
    #[error("{failed} of {attempted} failed")]
    Partly {
        /// Number of failed requests.
        failed: usize,
        /// Number of all requests.
        attempted: usize,
        /// The first of them.
        #[source]
        first: ClientError,
    },
}

impl From<ClientError> for ReconcileError {
    fn from(source: ClientError) -> Self {
        Self::Request {
            doing: "request".to_owned(),
            source,
        }
    }
}

impl ReconcileError {
    /// Says what was being done.
    pub fn doing(doing: impl Into<String>) -> impl FnOnce(ClientError) -> Self {
        let doing = doing.into();
        move |source| Self::Request { doing, source }
    }

    /// Expected now and then: another wrote first.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Request { source, .. } | Self::Partly { first: source, .. } if source.is_conflict())
    }

    /// The error with its causes, as events and the log show it.
    pub fn chain(&self) -> String {
        machinery_meta::error_chain::error_chain(self)
    }
}

/// Name of an object to look at. Keys of a namespace have a line of their own, and the lines take turns, so that nobody
/// waits for all that another namespace has made.
pub trait QueueKey: Ord + Clone + Debug + Send + Sync + 'static {
    /// The namespace, empty for what is in none.
    fn namespace(&self) -> &str;
}

impl QueueKey for ObjectKey {
    fn namespace(&self) -> &str {
        &self.namespace
    }
}

/// Moves the world towards what one object asks for.
pub trait Reconciler: Send + Sync + 'static {
    /// Names the object to look at.
    type Key: QueueKey;

    /// Looks and acts once.
    fn reconcile<'a>(&'a self, key: &'a Self::Key) -> BoxFuture<'a, Result<Outcome, ReconcileError>>;
}

/// A named loop over a queue; built, then [`run`](Controller::run).
pub struct Controller<R: Reconciler> {
    name: &'static str,
    runtime: Runtime,
    queue: WorkQueue<R::Key>,
    stats: Arc<ControllerStats>,
    workers: usize,
    lines: Arc<LogLines>,
    caches: Vec<BoxFuture<'static, ()>>,
    subscriptions: Vec<Subscription>,
    _readings: [Reading; 3],
}

impl<R: Reconciler> Debug for Controller<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("name", &self.name)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

/// Reconciliations at a time, where a controller does not say otherwise.
pub const DEFAULT_WORKERS: usize = 5;
/// A key rests so many times as long as it was looked at, so that looking takes at most a twentieth of a core.
const COOLDOWN_FACTOR: u32 = 19;
/// A shorter rest would save nothing.
const SHORTEST_REST: Duration = Duration::from_millis(5);
/// Nothing rests longer, whatever kept a look from its end.
const MAX_COOLDOWN: Duration = Duration::from_secs(1);
/// Lines of a controller on keys that keep failing.
const LINES_AN_HOUR: u32 = 200;
const HOUR: Duration = Duration::from_secs(3_600);
/// Bytes of an error that is logged.
const MAX_LOGGED_BYTES: usize = 1_024;
/// From this failure on a failing key is logged as a warning.
const WARN_FROM_FAILURE: u32 = 4;

impl<R: Reconciler> Controller<R> {
    /// A controller whose log lines carry this name; its queue's metrics carry the other one.
    pub fn new(name: &'static str, queue_name: &'static str, runtime: Runtime) -> Self {
        let stats = Arc::new(ControllerStats::of_queue(runtime.metrics(), queue_name));
        let queue = WorkQueue::new(runtime.clone(), stats.clone());
        queue.share_by(<R::Key as QueueKey>::namespace);
        Self {
            _readings: read_queue(&queue, queue_name, &runtime),
            name,
            queue,
            runtime,
            stats,
            workers: DEFAULT_WORKERS,
            lines: Arc::default(),
            caches: Vec::new(),
            subscriptions: Vec::new(),
        }
    }

    /// The queue, for handlers and for the reconciler itself.
    pub fn queue(&self) -> WorkQueue<R::Key> {
        self.queue.clone()
    }

    /// The counters.
    pub fn stats(&self) -> Arc<ControllerStats> {
        self.stats.clone()
    }

    /// At most this many reconciliations at a time.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Nothing starts before this cache is filled.
    #[must_use]
    pub fn needs<P: Projection>(mut self, cache: &Informer<P>) -> Self {
        let cache = cache.clone();
        self.caches.push(Box::pin(async move { cache.synced().await }));
        self
    }

    /// Every change of this cache puts the keys that `keys` answers in line; nothing starts before it is filled.
    #[must_use]
    pub fn watches<P, I>(
        self,
        cache: &Informer<P>,
        keys: impl Fn(&machinery_client::Change<P>) -> I + Send + Sync + 'static,
    ) -> Self
    where
        P: Projection,
        I: IntoIterator<Item = R::Key>,
    {
        let queue = self.queue.clone();
        let subscription =
            cache.on_change(move |change| keys(change).into_iter().for_each(|key| queue.add(key)));
        self.keeps(subscription).needs(cache)
    }

    /// Keeps a handler alive as long as the controller runs.
    #[must_use]
    pub fn keeps(mut self, subscription: Subscription) -> Self {
        self.subscriptions.push(subscription);
        self
    }

    /// Runs until dropped.
    pub fn run(mut self, reconciler: R) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            for cache in std::mem::take(&mut self.caches) {
                cache.await;
            }
            tracing::debug!(controller = self.name, "caches synced");
            // Looks that take long hold all workers but one.
            self.queue.limit_shares(self.workers.saturating_sub(1).max(1));
            let reconciler = Arc::new(reconciler);
            let mut running = FuturesUnordered::new();
            loop {
                let free = running.len() < self.workers;
                tokio::select! {
                    biased;
                    Some(()) = running.next(), if !running.is_empty() => {}
                    key = self.queue.next(), if free => running.push(self.work(reconciler.clone(), key)),
                }
            }
        })
    }

    fn work(&self, reconciler: Arc<R>, key: R::Key) -> BoxFuture<'static, ()> {
        let (queue, stats, runtime) = (self.queue.clone(), self.stats.clone(), self.runtime.clone());
        let (name, lines) = (self.name, Arc::clone(&self.lines));
        Box::pin(async move {
            // One object that a reconciler cannot bear must not end it for all the others.
            let reconciliation = runtime.catch(name, async { reconciler.reconcile(&key).await });
            let (looked, outcome) = time_first_poll(&runtime, reconciliation).await;
            let outcome = outcome.unwrap_or_else(|ended| Err(ReconcileError::Unusable(ended.to_string())));
            stats.reconciled(outcome.is_err());
            let mut cooldown = cooldown_after(looked);
            match outcome {
                Ok(Outcome::Done) => queue.forget(&key),
                Ok(Outcome::Rest(rest)) => {
                    queue.forget(&key);
                    cooldown = cooldown.max(rest);
                }
                Ok(Outcome::RequeueAfter(delay)) => {
                    queue.forget(&key);
                    queue.add_after(key.clone(), delay);
                }
                Err(error) => {
                    queue.add_rate_limited(key.clone());
                    let (failures, now) = (queue.failures(&key), runtime.monotonic());
                    log((name, &key), &error, failures, (&lines, now));
                }
            }
            queue.done_with_cooldown(&key, cooldown);
        })
    }
}

/// Gauges of a queue, read when somebody asks.
fn read_queue<K: QueueKey>(queue: &WorkQueue<K>, name: &'static str, runtime: &Runtime) -> [Reading; 3] {
    let read = |family: &Family, figure: fn((usize, f64, f64)) -> f64| {
        let queue = queue.clone();
        runtime.metrics().read(family, move |samples| {
            samples.add(&[name], figure(queue.figures()))
        })
    };
    [
        #[expect(clippy::cast_precision_loss, reason = "far below where it begins")]
        read(&DEPTH, |(depth, _, _)| depth as f64),
        read(&UNFINISHED, |(_, unfinished, _)| unfinished),
        read(&LONGEST, |(_, _, longest)| longest),
    ]
}

/// Returns the outcome of a reconcile, and the time that it computed before it first waited: what comes after are requests,
/// and waiting for them is no work.
async fn time_first_poll<T>(runtime: &Runtime, reconciliation: impl Future<Output = T>) -> (Duration, T) {
    let mut reconciliation = pin!(reconciliation);
    let begun = runtime.monotonic();
    let first = futures::poll!(reconciliation.as_mut());
    let looked = runtime.monotonic().saturating_sub(begun);
    match first {
        Poll::Ready(outcome) => (looked, outcome),
        Poll::Pending => (looked, reconciliation.await),
    }
}

fn cooldown_after(looked: Duration) -> Duration {
    let rest = looked.saturating_mul(COOLDOWN_FACTOR).min(MAX_COOLDOWN);
    if rest < SHORTEST_REST {
        Duration::ZERO
    } else {
        rest
    }
}

fn log(
    (controller, key): (&'static str, &impl Debug),
    error: &ReconcileError,
    failures: u32,
    (lines, now): (&LogLines, Duration),
) {
    let chain = error.chain();
    let end = chain.floor_char_boundary(MAX_LOGGED_BYTES);
    let error_chain = &chain[..end];
    let keeps_failing = !error.is_conflict() && failures >= WARN_FROM_FAILURE;
    match keeps_failing.then(|| lines.take(now)).flatten() {
        Some(left_out) => {
            tracing::warn!(
                controller,
                ?key,
                failures,
                left_out,
                error = error_chain,
                "reconcile keeps failing"
            );
        }
        None => {
            tracing::debug!(
                controller,
                ?key,
                failures,
                error = error_chain,
                "reconcile failed, requeued"
            );
        }
    }
}

/// Lines that a controller may write about keys that keep failing, which tenants make as many as they like.
#[derive(Debug, Default)]
struct LogLines(Mutex<LinesOfHour>);

#[derive(Debug, Default)]
struct LinesOfHour {
    since: Duration,
    written: u32,
    left_out: u64,
}

impl LogLines {
    /// The number of lines left out before this one, if it may be written.
    fn take(&self, now: Duration) -> Option<u64> {
        let mut lines = self.0.lock();
        if now.saturating_sub(lines.since) >= HOUR {
            (lines.since, lines.written) = (now, 0);
        }
        if lines.written >= LINES_AN_HOUR {
            lines.left_out += 1;
            return None;
        }
        lines.written += 1;
        Some(std::mem::take(&mut lines.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_runtime::Simulation;

    #[test]
    fn failing_keys_write_a_bounded_number_of_lines_an_hour() {
        let lines = LogLines::default();
        let written = (0..1_000).filter_map(|_| lines.take(Duration::from_secs(9)));
        assert_eq!(written.count(), LINES_AN_HOUR as usize);
        let later = lines.take(HOUR + Duration::from_secs(9));
        assert_eq!(later, Some(1_000 - u64::from(LINES_AN_HOUR)));
    }

    impl QueueKey for u32 {
        fn namespace(&self) -> &str {
            ""
        }
    }

    struct Flaky {
        seen: Arc<Mutex<Vec<u32>>>,
        failures: Mutex<u32>,
    }

    impl Reconciler for Flaky {
        type Key = u32;

        fn reconcile<'a>(&'a self, key: &'a u32) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
            Box::pin(async move {
                self.seen.lock().push(*key);
                let mut failures = self.failures.lock();
                if *key == 7 && *failures > 0 {
                    *failures -= 1;
                    return Err(ReconcileError::Unusable("not yet".to_owned()));
                }
                Ok(Outcome::Done)
            })
        }
    }

    #[test]
    fn cooldowns_are_proportional_and_bounded() {
        assert_eq!(cooldown_after(Duration::from_micros(200)), Duration::ZERO);
        assert_eq!(
            cooldown_after(Duration::from_millis(4)),
            Duration::from_millis(76)
        );
        assert_eq!(cooldown_after(Duration::from_secs(3)), MAX_COOLDOWN);
    }

    struct Fragile(Arc<Mutex<Vec<u32>>>);

    impl Reconciler for Fragile {
        type Key = u32;

        fn reconcile<'a>(&'a self, key: &'a u32) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
            let mut seen = self.0.lock();
            seen.push(*key);
            let first = seen.iter().filter(|seen| *seen == key).count() == 1;
            drop(seen);
            assert!(*key != 7 || !first, "as told");
            Box::pin(async { Ok(Outcome::Done) })
        }
    }

    #[tokio::test]
    async fn reconciler_that_panics_goes_on_and_tries_that_key_again() {
        let scope = Runtime::real().child_scope();
        let (runtime, seen) = (scope.runtime().clone(), Arc::new(Mutex::new(Vec::new())));
        let controller = Controller::new("fragile", "fragile", runtime.clone()).workers(1);
        let (queue, stats) = (controller.queue(), controller.stats());
        drop(runtime.spawn("fragile", controller.run(Fragile(seen.clone()))));
        queue.add(7);
        queue.add(8);
        while stats.snapshot().reconciles < 3 {
            runtime.sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(*seen.lock(), [7, 8, 7]);
        assert_eq!((stats.snapshot().reconciles, stats.snapshot().errors), (3, 1));
        assert_eq!(runtime.components().panics(), [("fragile", 1)]);
    }

    #[test]
    fn driver_failing_key_is_retried_and_others_continue() {
        let simulation = Simulation::new(3);
        let runtime = simulation.runtime();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let reconciler = Flaky {
            seen: seen.clone(),
            failures: Mutex::new(3),
        };
        simulation.run(async move {
            let controller = Controller::<Flaky>::new("flaky", "flaky", runtime.clone());
            let (queue, stats) = (controller.queue(), controller.stats());
            drop(runtime.spawn("flaky", controller.run(reconciler)));
            queue.add(7);
            queue.add(8);
            while !(queue.is_idle() && stats.snapshot().reconciles == 5) {
                runtime.sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(stats.snapshot().errors, 3);
            assert_eq!(queue.failures(&7), 0);
        });
        let seen = seen.lock();
        assert_eq!(seen.iter().filter(|key| **key == 7).count(), 4);
        assert_eq!(seen.iter().filter(|key| **key == 8).count(), 1);
    }

    /// Rests for ten seconds after each look at 1.
    struct Dear(Arc<Mutex<Vec<(u32, Duration)>>>, Runtime);

    impl Reconciler for Dear {
        type Key = u32;

        fn reconcile<'a>(&'a self, key: &'a u32) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
            self.0.lock().push((*key, self.1.monotonic()));
            let outcome = match key {
                1 => Outcome::Rest(Duration::from_secs(10)),
                _ => Outcome::Done,
            };
            Box::pin(async move { Ok(outcome) })
        }
    }

    #[test]
    fn key_that_rests_is_looked_at_once_for_all_its_changes() {
        let simulation = Simulation::new(5);
        let (runtime, seen) = (simulation.runtime(), Arc::new(Mutex::new(Vec::new())));
        let reconciler = Dear(seen.clone(), runtime.clone());
        simulation.run(async move {
            let controller = Controller::<Dear>::new("dear", "dear", runtime.clone());
            let (queue, stats) = (controller.queue(), controller.stats());
            drop(runtime.spawn("dear", controller.run(reconciler)));
            queue.add(1);
            for round in 0..5 {
                while stats.snapshot().reconciles < 1 + round {
                    runtime.sleep(Duration::from_millis(1)).await;
                }
                queue.add(1);
                queue.add(2);
            }
            while !queue.is_idle() {
                runtime.sleep(Duration::from_millis(100)).await;
            }
        });
        let seen = seen.lock();
        let ones: Vec<Duration> = seen
            .iter()
            .filter(|(key, _)| *key == 1)
            .map(|(_, at)| *at)
            .collect();
        assert_eq!(ones.len(), 2, "{seen:?}");
        assert!(ones[1] - ones[0] >= Duration::from_secs(10));
        assert!(
            seen.iter()
                .filter(|(key, _)| *key == 2)
                .all(|(_, at)| *at < ones[1])
        );
    }
}
