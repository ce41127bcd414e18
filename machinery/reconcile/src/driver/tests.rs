//! Controllers whose reconcilers fail, panic, rest and wait.

use super::*;
use crate::running::WAITING_PER_WORKER;
use machinery_runtime::Simulation;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

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

/// Counts warnings.
#[derive(Default)]
struct Warnings(AtomicU32);

impl tracing::Subscriber for &'static Warnings {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let warns = *event.metadata().level() == tracing::Level::WARN;
        self.0.fetch_add(u32::from(warns), Ordering::Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn failing_keys_write_a_bounded_number_of_lines_an_hour() {
    let runtime = Simulation::new(1).runtime();
    let controller = Controller::<Flaky>::new("flaky", "flaky", runtime);
    let error = ReconcileError::Unusable("never".to_owned());
    let warnings: &'static Warnings = Box::leak(Box::default());
    let written = |failures, at| {
        warnings.0.store(0, Ordering::Relaxed);
        let fail = |key: u32| log(("flaky", &key), &error, failures, (&controller.lines, at));
        tracing::subscriber::with_default(warnings, || (0..1_000).for_each(fail));
        warnings.0.load(Ordering::Relaxed)
    };
    let first = Duration::from_secs(9);
    assert_eq!(written(WARN_FROM_FAILURE - 1, first), 0);
    assert_eq!(written(WARN_FROM_FAILURE, first), LINES_AN_HOUR);
    assert_eq!(written(WARN_FROM_FAILURE, HOUR - Duration::from_secs(1)), 0);
    let later = HOUR + first;
    assert_eq!(
        controller.lines.should_log(later),
        Some(2_000 - u64::from(LINES_AN_HOUR))
    );
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

/// Waits for an hour on keys of `slow` namespaces.
struct Waits(Arc<Mutex<Vec<ObjectKey>>>, Runtime);

impl Reconciler for Waits {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            self.0.lock().push(key.clone());
            if key.namespace.starts_with("slow") {
                self.1.sleep(HOUR).await;
            }
            Ok(Outcome::Done)
        })
    }
}

/// Begins a controller with slow keys of many namespaces; returns how many of them began before a quick one, which came after.
fn slow_ones_beside_a_quick_one(namespaces: usize, workers: usize) -> Option<usize> {
    let simulation = Simulation::new(7);
    let (runtime, seen) = (simulation.runtime(), Arc::new(Mutex::new(Vec::new())));
    let reconciler = Waits(seen.clone(), runtime.clone());
    simulation.run(async move {
        let controller = Controller::<Waits>::new("waits", "waits", runtime.clone()).workers(workers);
        let queue = controller.queue();
        drop(runtime.spawn("waits", controller.run(reconciler)));
        for number in 0..10 {
            let key = |namespace| ObjectKey::new(format!("slow{namespace}"), number.to_string());
            (0..namespaces).map(key).for_each(|key| queue.add(key));
        }
        runtime.sleep(HOUR / 2).await;
        queue.add(ObjectKey::new("quick", "a"));
        runtime.sleep(Duration::from_secs(1)).await;
    });
    let seen = seen.lock();
    seen.iter().position(|key| key.namespace == "quick")
}

#[test]
fn reconciliations_that_wait_long_leave_their_workers_to_others() {
    let each = DEFAULT_WORKERS - 1;
    assert_eq!(
        slow_ones_beside_a_quick_one(2, DEFAULT_WORKERS),
        Some(2 * each),
        "a namespace has a bounded number of them"
    );
    assert_eq!(slow_ones_beside_a_quick_one(10, DEFAULT_WORKERS), Some(10 * each));
    // All of them together are bounded, too.
    let namespaces = DEFAULT_WORKERS * WAITING_PER_WORKER / each + 10;
    assert_eq!(slow_ones_beside_a_quick_one(namespaces, DEFAULT_WORKERS), None);
}

#[test]
fn only_worker_of_a_controller_reconciles_one_key_at_a_time() {
    assert_eq!(slow_ones_beside_a_quick_one(1, 1), None);
}
