//! Waits for caches, hands keys to a reconciler, at most so many at a time, and backs off on errors.
//!
//! One task drives all reconciliations of a controller: an idle controller costs one small task, however many may run.
//! One that waits long for answers, such as those of a slow webhook, holds no worker meanwhile (`running`).
//!
//! A look at an object that has ten thousand others costs milliseconds, and each of these others wakes it. So a key
//! rests after a look that took long, in proportion: however many events there are, looking at one key takes no more
//! than a fixed part of a core. A cheap key does not rest.

mod dear_changes;

use crate::outcome::{Outcome, ReconcileError};
use crate::queue::WorkQueue;
use crate::running::Running;
use crate::stats::{ControllerStats, DEPTH, LONGEST, UNFINISHED};
use dear_changes::DearChanges;
use futures::future::{BoxFuture, join_all, select};
use machinery_client::{Change, Informer, Projection, Subscription};
use machinery_meta::ObjectKey;
use machinery_runtime::metrics::{Family, Reading};
use machinery_runtime::{LogThrottle, Runtime};
use std::fmt::{self, Debug};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Key of a reconcile. Keys are queued by namespace and workers take from the namespaces in turn, so that no
/// namespace waits for all objects of another one.
pub trait QueueKey: Ord + Clone + Debug + Send + Sync + 'static {
    /// The namespace, empty for what is in none.
    fn namespace(&self) -> &str;
}

impl QueueKey for ObjectKey {
    fn namespace(&self) -> &str {
        &self.namespace
    }
}

/// Moves the cluster's state towards the specification of one object.
pub trait Reconciler: Send + Sync + 'static {
    /// Key of the object to reconcile.
    type Key: QueueKey;

    /// Reads the caches, and acts once.
    fn reconcile<'a>(&'a self, key: &'a Self::Key) -> BoxFuture<'a, Result<Outcome, ReconcileError>>;
}

/// A named loop over a queue; built, then [`run`](Controller::run).
pub struct Controller<R: Reconciler> {
    name: &'static str,
    runtime: Runtime,
    queue: WorkQueue<R::Key>,
    stats: Arc<ControllerStats>,
    workers: usize,
    /// About keys that keep failing, which tenants make as many as they like.
    lines: Arc<LogThrottle>,
    caches: Vec<BoxFuture<'static, ()>>,
    subscriptions: Vec<Subscription>,
    /// Futures that process changes whose keys take long to find; none of them ends.
    looks: Vec<BoxFuture<'static, ()>>,
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
/// Cooldown of a key in multiples of the time that its reconcile computed: one key takes at most a twentieth of a core (decision 0025).
const COOLDOWN_FACTOR: u32 = 19;
/// Shorter cooldowns are left out: they would save nothing.
const SHORTEST_REST: Duration = Duration::from_millis(5);
/// Longest cooldown: a reconcile also looks long when its thread was preempted.
const MAX_COOLDOWN: Duration = Duration::from_secs(1);
/// Log lines of a controller per hour on keys that keep failing.
const LINES_AN_HOUR: u32 = 200;
const HOUR: Duration = Duration::from_secs(3_600);
/// Bytes of an error that is logged.
const MAX_LOGGED_BYTES: usize = 1_024;
/// Failure from which on a failing key is logged as a warning.
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
            lines: Arc::new(LogThrottle::new(LINES_AN_HOUR, HOUR)),
            caches: Vec::new(),
            subscriptions: Vec::new(),
            looks: Vec::new(),
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

    /// Sets the most reconciliations at a time.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Starts no reconcile before this cache has synced.
    #[must_use]
    pub fn needs<P: Projection>(mut self, cache: &Informer<P>) -> Self {
        let cache = cache.clone();
        self.caches.push(Box::pin(async move { cache.synced().await }));
        self
    }

    /// Queues the keys that `keys` returns for every change of this cache; no reconcile starts before it has synced.
    #[must_use]
    pub fn watches<P, I>(
        self,
        cache: &Informer<P>,
        keys: impl Fn(&Change<P>) -> I + Send + Sync + 'static,
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

    /// As [`watches`](Self::watches), for changes that `concerns` selects and whose keys take long to find, as long as a namespace's
    /// users like: they are processed by namespace, in turn.
    #[must_use]
    pub fn watches_in_turns<P, I>(
        mut self,
        cache: &Informer<P>,
        concerns: impl Fn(&Change<P>) -> bool + Send + Sync + 'static,
        keys: impl Fn(&Change<P>) -> I + Send + Sync + 'static,
    ) -> Self
    where
        P: Projection,
        I: IntoIterator<Item = R::Key>,
    {
        let waiting = Arc::new(DearChanges::new(&self.runtime));
        let (queue, line) = (self.queue.clone(), Arc::clone(&waiting));
        let subscription = cache.on_change(move |change| {
            if concerns(change) {
                let (old, new) = (change.old.clone(), change.new.clone());
                line.add(change.key().to_string(), old, new);
            }
        });
        self.looks.push(Box::pin(async move {
            let look = |old, new| {
                let change = Change { old, new };
                keys(&change).into_iter().for_each(|key| queue.add(key));
            };
            waiting.run(look).await;
        }));
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
            // Reconciliations of one namespace that take long hold all workers but one.
            self.queue.limit_shares(self.workers.saturating_sub(1).max(1));
            let looks = std::mem::take(&mut self.looks);
            match looks.is_empty() {
                true => self.reconcile(reconciler).await,
                false => drop(select(pin!(self.reconcile(reconciler)), join_all(looks)).await),
            }
        })
    }

    async fn reconcile(self, reconciler: R) {
        let reconciler = Arc::new(reconciler);
        let mut running = Running::new(self.runtime.clone(), self.workers);
        loop {
            tokio::select! {
                biased;
                // Before new keys: reconciles in progress are polled by this very task.
                () = running.changed(), if !running.is_empty() => {}
                key = self.queue.next(), if running.has_room() => running.push(self.work(reconciler.clone(), key)),
            }
        }
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
            // Last, after the requeue: a key that is still `working` when it is added again is queued once, by
            // `done`.
            queue.done_with_cooldown(&key, cooldown);
        })
    }
}

/// Gauges of a queue, read at each scrape.
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
    // Reconcilers read caches and plan before their first request, so the first poll is their computation.
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
    (lines, now): (&LogThrottle, Duration),
) {
    let chain = error.chain();
    let end = chain.floor_char_boundary(MAX_LOGGED_BYTES);
    let error_chain = &chain[..end];
    // Conflicts are the normal outcome of a race and end with the next event.
    let keeps_failing = !error.is_conflict() && failures >= WARN_FROM_FAILURE;
    match keeps_failing.then(|| lines.should_log(now)).flatten() {
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

#[cfg(test)]
mod tests;
