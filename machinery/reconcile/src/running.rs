//! Reconciliations under way, each of which has a worker until it has waited long.
//!
//! A tenant whose webhook answers after thirty seconds makes each write in its namespaces last as long. Were such
//! reconciliations to keep their workers, two namespaces would hold all of a controller's: so a reconciliation that has
//! lasted a while leaves its worker to others and goes on beside them.

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use machinery_runtime::Runtime;
use std::time::Duration;

/// Time after which a reconciliation leaves its worker.
const LEAVES_WORKER_AFTER: Duration = Duration::from_secs(1);
/// Reconciliations that go on without a worker, for each worker; each holds a request, and may be one that a busy server wants again later.
pub(crate) const WAITING_PER_WORKER: usize = 16;

/// Reconciliations under way.
pub(crate) struct Running {
    runtime: Runtime,
    workers: usize,
    /// Reconciliations with a worker; each ends with the rest of it once it has lasted long.
    working: FuturesUnordered<BoxFuture<'static, Option<BoxFuture<'static, ()>>>>,
    /// Reconciliations without one.
    waiting: FuturesUnordered<BoxFuture<'static, ()>>,
}

impl Running {
    /// None yet, and so many workers.
    pub(crate) fn new(runtime: Runtime, workers: usize) -> Self {
        Self {
            runtime,
            workers,
            working: FuturesUnordered::new(),
            waiting: FuturesUnordered::new(),
        }
    }

    /// Reports whether nothing is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.working.is_empty() && self.waiting.is_empty()
    }

    /// Reports whether a worker is free.
    pub(crate) fn has_room(&self) -> bool {
        self.working.len() < self.workers
    }

    /// Begins a reconciliation.
    pub(crate) fn push(&mut self, reconciliation: BoxFuture<'static, ()>) {
        // With one worker no two reconciliations may overlap.
        let stays = self.workers == 1;
        let runtime = self.runtime.clone();
        self.working.push(Box::pin(async move {
            if stays {
                reconciliation.await;
                return None;
            }
            for_a_while(&runtime, reconciliation).await
        }));
    }

    /// Waits until one has ended or left its worker. Something must be under way.
    pub(crate) async fn changed(&mut self) {
        tokio::select! {
            biased;
            Some(()) = self.waiting.next(), if !self.waiting.is_empty() => {}
            Some(rest) = self.working.next(), if !self.working.is_empty() => {
                let Some(rest) = rest else { return };
                if self.waiting.len() < self.workers * WAITING_PER_WORKER {
                    self.waiting.push(rest);
                } else {
                    self.push(rest);
                }
            }
        }
    }
}

/// Drives a reconciliation; returns what is left of it where it lasts long.
async fn for_a_while(
    runtime: &Runtime,
    mut reconciliation: BoxFuture<'static, ()>,
) -> Option<BoxFuture<'static, ()>> {
    tokio::select! {
        biased;
        () = &mut reconciliation => None,
        () = runtime.sleep(LEAVES_WORKER_AFTER) => Some(reconciliation),
    }
}
