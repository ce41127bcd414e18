//! Sizes of pods' emptyDirs and logs as far as they are known, and the requests for more.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use machinery_runtime::{Runtime, Watched};
use node_sys::fs::DiskUsage;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Time that a decision waits for a pass.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Time for which sizes of all pods are kept up to date after a client's request; upstream counts once a minute in any case.
const WANTED_FOR: Duration = Duration::from_secs(150);

/// Sizes of a pod's files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PodStorage {
    /// emptyDirs on the disk, by volume.
    pub(crate) volumes: BTreeMap<String, DiskUsage>,
    /// Logs, by container.
    pub(crate) logs: BTreeMap<String, DiskUsage>,
}

/// The sizes that are known, and requests for more.
#[derive(Debug, Default)]
pub(crate) struct StorageLooks {
    known: Mutex<Arc<HashMap<String, PodStorage>>>,
    /// All pods are looked at, not only those with limits.
    everyone: AtomicBool,
    /// Time until which all pods are looked at for a client, in milliseconds of the agent's clock.
    wanted_until: AtomicU64,
    passes: Watched<u64>,
    wake: Notify,
}

impl StorageLooks {
    /// The sizes by the pods' uids.
    pub(crate) fn known(&self) -> Arc<HashMap<String, PodStorage>> {
        self.known.lock().clone()
    }

    /// Looks at all pods from now on, or only at those with limits.
    pub(crate) fn look_at_everyone(&self, everyone: bool) {
        self.everyone.store(everyone, Ordering::Release);
    }

    /// Looks at all pods for some time from now on: a client shows their sizes.
    pub(crate) fn ask_for_everyone(&self, now: Duration) {
        let until = u64::try_from((now + WANTED_FOR).as_millis()).unwrap_or(u64::MAX);
        self.wanted_until.fetch_max(until, Ordering::AcqRel);
    }

    /// Waits for a pass that begins from now on, for as long as [`PATIENCE`].
    pub(crate) async fn next_pass(&self, runtime: &Runtime) {
        let before = self.passes.get();
        self.wake.notify_one();
        // One may be under way, and another follows it.
        let passed = self.passes.wait_for(|passes| *passes > before + 1);
        let waiting = async {
            tokio::select! {
                biased;
                _ = passed => {}
                () = self.keep_waking(runtime) => {}
            }
        };
        // What is known by then has to do.
        let _ = runtime.timeout(PATIENCE, waiting).await;
    }

    /// Reports whether all pods are to be looked at.
    pub(crate) fn looks_at_everyone(&self, now: Duration) -> bool {
        let wanted_until = Duration::from_millis(self.wanted_until.load(Ordering::Acquire));
        self.everyone.load(Ordering::Acquire) || now < wanted_until
    }

    /// Applies the sizes of a pass.
    pub(crate) fn passed(&self, known: Option<HashMap<String, PodStorage>>) {
        if let Some(known) = known {
            *self.known.lock() = Arc::new(known);
        }
        self.passes.change(|passes| {
            *passes += 1;
            true
        });
    }

    /// Waits for a request for more.
    pub(crate) async fn wanted(&self) {
        self.wake.notified().await;
    }

    async fn keep_waking(&self, runtime: &Runtime) {
        loop {
            runtime.sleep(Duration::from_secs(1)).await;
            self.wake.notify_one();
        }
    }
}
