//! A value that costs something to read, shared by all that ask for it.
//!
//! One reading is under way at a time. It runs in a task of its own, so that a client that goes away neither ends it nor
//! has another begin, and what it found is kept for twenty times as long as it took: clients in a loop take a twentieth of a
//! processor, whatever they ask and however many they are. Nothing is kept longer, and nothing runs while no client asks.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use machinery_runtime::Runtime;
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};

/// A value is kept at least so long.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// It is kept so many times as long as reading it took.
const REST_PER_READING: u32 = 20;
/// It is kept no longer than this.
const KEPT_AT_MOST: Duration = Duration::from_secs(30);

/// A value, or why it is not known.
type Outcome<T> = Result<Arc<T>, String>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    runtime: Runtime,
    kept: Arc<Mutex<Option<Kept<T>>>>,
}

#[derive(Debug)]
struct Kept<T> {
    outcome: Outcome<T>,
    until: Duration,
}

impl<T: Send + Sync + 'static> Shared<T> {
    pub(crate) fn new(runtime: Runtime) -> Self {
        Self {
            runtime,
            kept: Arc::default(),
        }
    }

    /// The value that is kept, or the one that `read` finds.
    pub(crate) async fn get<F>(&self, read: impl FnOnce() -> F) -> Outcome<T>
    where
        F: Future<Output = Result<T, String>> + Send + 'static,
    {
        let kept = Arc::clone(&self.kept).lock_owned().await;
        let now = self.runtime.monotonic();
        if let Some(known) = kept.as_ref().filter(|known| now < known.until) {
            return known.outcome.clone();
        }
        let found = self.begin(kept, read());
        found
            .await
            .unwrap_or_else(|_| Err("reading figures failed".to_owned()))
    }

    /// Begins a reading, which holds the place until it ends.
    fn begin<F>(
        &self,
        mut kept: OwnedMutexGuard<Option<Kept<T>>>,
        reading: F,
    ) -> oneshot::Receiver<Outcome<T>>
    where
        F: Future<Output = Result<T, String>> + Send + 'static,
    {
        let (found, receiver) = oneshot::channel();
        let (runtime, place) = (self.runtime.clone(), Arc::clone(&self.kept));
        let task = async move {
            let began = runtime.monotonic();
            let outcome = reading.await.map(Arc::new);
            let now = runtime.monotonic();
            let rest = (now.saturating_sub(began) * REST_PER_READING).clamp(KEPT_FOR, KEPT_AT_MOST);
            *kept = Some(Kept {
                outcome: outcome.clone(),
                until: now + rest,
            });
            drop(kept);
            // The client may have gone.
            let _ = found.send(outcome);
            runtime.sleep(rest).await;
            let mut kept = place.lock().await;
            if kept.as_ref().is_some_and(|own| own.until <= runtime.monotonic()) {
                *kept = None;
            }
        };
        self.runtime.spawn_request("reading figures", task).detach();
        receiver
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use machinery_runtime::Simulation;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A reading that takes a second and counts itself.
    fn slow(
        runtime: &Runtime,
        count: &Arc<AtomicU32>,
    ) -> impl Future<Output = Result<u32, String>> + Send + use<> {
        let (runtime, count) = (runtime.clone(), Arc::clone(count));
        async move {
            runtime.sleep(Duration::from_secs(1)).await;
            Ok(count.fetch_add(1, Ordering::Relaxed) + 1)
        }
    }

    #[test]
    fn figures_are_read_once_for_all_clients() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let (shared, count) = (Shared::new(runtime.clone()), Arc::default());
            let all = (0..50).map(|_| shared.get(|| slow(&runtime, &count)));
            let found: Vec<_> = join_all(all).await.into_iter().map(|own| *own.unwrap()).collect();
            assert_eq!(found, vec![1; 50]);
            runtime.sleep(Duration::from_secs(19)).await;
            assert_eq!(*shared.get(|| slow(&runtime, &count)).await.unwrap(), 1);
            runtime.sleep(Duration::from_secs(2)).await;
            assert!(shared.kept.lock().await.is_none(), "nothing is kept for later");
            assert_eq!(*shared.get(|| slow(&runtime, &count)).await.unwrap(), 2);
        });
    }

    #[test]
    fn figures_of_clients_that_go_away_are_read_once() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let (shared, count) = (Shared::new(runtime.clone()), Arc::default());
            for _ in 0..20 {
                let patience = Duration::from_millis(10);
                let figure = runtime.timeout(patience, shared.get(|| slow(&runtime, &count)));
                assert!(figure.await.is_err());
            }
            assert_eq!(*shared.get(|| slow(&runtime, &count)).await.unwrap(), 1);
        });
    }

    #[test]
    fn figures_that_cannot_be_read_are_not_asked_for_again_at_once() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let shared = Shared::<u32>::new(runtime.clone());
            let failed = shared.get(async || Err("gone".to_owned())).await;
            assert_eq!(failed, Err("gone".to_owned()));
            assert_eq!(shared.get(async || Ok(1)).await, failed);
            runtime.sleep(KEPT_FOR).await;
            assert_eq!(shared.get(async || Ok(1)).await, Ok(Arc::new(1)));
        });
    }
}
