//! Containers whose logs are followed: their followers share one watch of the folder and one look at whether the container
//! still runs, however many they are.
//!
//! A follower reads until there is nothing more, and waits for the folder to change. The end of a container comes with
//! containerd's event; the runtime's status is read when the first follower comes, after that event, and seldom beside.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use machinery_runtime::{CancellationToken, Runtime, TaskHandle};
use node_sys::folder_events::{FolderChanges, FolderEvents, FolderWatch};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Interval of status requests for a followed container, in case its end was no event.
const ASK_AFTER: Duration = Duration::from_secs(10);
/// The event of an end comes before the last lines are in the log, and the runtime's own record says so.
const SETTLES_AFTER: Duration = Duration::from_millis(50);
/// Interval of reads of a log without a watch of its folder.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// Says whether a container still runs; `None` where the runtime does not answer.
pub(crate) type StillRunning = Box<dyn Fn() -> BoxFuture<'static, Option<bool>> + Send + Sync>;

/// The followed containers by id.
#[derive(Debug, Default)]
pub(crate) struct FollowedLogs {
    containers: Mutex<HashMap<String, Weak<Followed>>>,
    events: OnceLock<Arc<FolderEvents>>,
}

/// Shared by all followers of a container, and gone with the last.
#[derive(Debug)]
struct Followed {
    id: String,
    of: Weak<FollowedLogs>,
    folder: Option<FolderWatch>,
    ended: CancellationToken,
    changed: Arc<Notify>,
    asking: TaskHandle<()>,
}

/// A follower of a container's log.
#[derive(Debug)]
pub(crate) struct Follower {
    runtime: Runtime,
    changes: Option<FolderChanges>,
    ended: CancellationToken,
    /// `None` where nothing is shared.
    _followed: Option<Arc<Followed>>,
}

impl FollowedLogs {
    /// Watches folders, for ever; before it does, followers look by themselves.
    pub(crate) async fn run(&self, runtime: &Runtime) {
        let events = match self.events.get() {
            Some(events) => Ok(Arc::clone(events)),
            None => FolderEvents::open(),
        };
        let events = events.map(|events| Arc::clone(self.events.get_or_init(|| events)));
        let outcome = match events {
            Ok(events) => events.run(runtime).await,
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            tracing::warn!(%error, "folders of logs are not watched: followers look every second");
        }
        std::future::pending().await
    }

    /// containerd's event that a container has ended.
    pub(crate) fn ended(&self, id: &str) {
        let found = self.containers.lock().get(id).and_then(Weak::upgrade);
        if let Some(followed) = found {
            followed.changed.notify_one();
        }
    }

    /// One more follower of the log of a container.
    pub(crate) fn follow(
        self: &Arc<Self>,
        runtime: &Runtime,
        id: &str,
        log: &Path,
        running: StillRunning,
    ) -> Follower {
        let mut containers = self.containers.lock();
        let known = containers.get(id).and_then(Weak::upgrade);
        let followed = known.unwrap_or_else(|| {
            let followed = Arc::new(self.begin(runtime, id, log, running));
            containers.insert(id.to_owned(), Arc::downgrade(&followed));
            followed
        });
        // Only now: what is dropped while the lock is held would wait for it.
        drop(containers);
        Follower {
            runtime: runtime.clone(),
            changes: followed.folder.as_ref().map(FolderWatch::changes),
            ended: followed.ended.clone(),
            _followed: Some(followed),
        }
    }

    fn begin(self: &Arc<Self>, runtime: &Runtime, id: &str, log: &Path, running: StillRunning) -> Followed {
        let watched = self.events.get().zip(log.parent());
        let watched = watched.and_then(|(events, folder)| events.watch(folder).ok());
        let (ended, changed) = (CancellationToken::new(), Arc::new(Notify::new()));
        let (own, polls) = (runtime.clone(), changed.clone());
        // Also if it ends otherwise: followers would not be notified of the container's end any more.
        let ends = ended.clone().drop_guard();
        let asking = runtime.spawn("end of a followed container", async move {
            let _ends = ends;
            until_ended(&own, &polls, running).await;
        });
        Followed {
            id: id.to_owned(),
            of: Arc::downgrade(self),
            folder: watched,
            ended,
            changed,
            asking,
        }
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.asking.abort();
        let Some(of) = self.of.upgrade() else { return };
        let mut containers = of.containers.lock();
        // Another may have begun meanwhile under the same id.
        if containers
            .get(&self.id)
            .is_some_and(|own| own.strong_count() == 0)
        {
            containers.remove(&self.id);
        }
    }
}

/// Returns when the container runs no longer.
async fn until_ended(runtime: &Runtime, changed: &Notify, running: StillRunning) {
    let mut pause = ASK_AFTER;
    while running().await != Some(false) {
        tokio::select! { biased;
            () = changed.notified() => pause = SETTLES_AFTER,
            () = runtime.sleep(pause) => pause = (pause * 2).min(ASK_AFTER),
        }
    }
}

impl Follower {
    /// A follower of a log without a writer.
    #[cfg(test)]
    pub(super) fn of_an_ended_one(runtime: &Runtime) -> Self {
        let ended = CancellationToken::new();
        ended.cancel();
        Self {
            runtime: runtime.clone(),
            changes: None,
            ended,
            _followed: None,
        }
    }

    /// Reports whether the container runs no longer, and everything it wrote is in the log.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Returns when the log may have grown, or the container has ended.
    pub(super) async fn waken(&mut self) {
        let written = async {
            if let Some(changes) = &mut self.changes
                && changes.next().await
            {
                return;
            }
            self.changes = None;
            self.runtime.sleep(LOOK_AFTER).await;
        };
        self.ended.run_until_cancelled(written).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// A container whose status requests are counted.
    #[derive(Debug, Clone, Default)]
    struct Container {
        polls: Arc<AtomicUsize>,
        ended: Arc<AtomicBool>,
    }

    impl Container {
        fn running(&self) -> StillRunning {
            let own = self.clone();
            Box::new(move || {
                own.polls.fetch_add(1, Ordering::Relaxed);
                let running = !own.ended.load(Ordering::Relaxed);
                Box::pin(async move { Some(running) })
            })
        }
    }

    fn simulated<F: Future<Output = ()> + Send + 'static>(story: impl FnOnce(Runtime) -> F) {
        let simulation = machinery_runtime::Simulation::new(1);
        simulation.run(story(simulation.runtime()));
    }

    #[test]
    fn log_followers_ask_the_runtime_together() {
        simulated(|runtime| async move {
            let (logs, container) = (Arc::new(FollowedLogs::default()), Container::default());
            let follow = || logs.follow(&runtime, "id", Path::new("/nowhere/0.log"), container.running());
            let mut followers: Vec<Follower> = (0..1_000).map(|_| follow()).collect();
            runtime.sleep(Duration::from_secs(60)).await;
            let polls = container.polls.load(Ordering::Relaxed);
            assert!((2..=8).contains(&polls), "asked {polls} times in a minute");
            container.ended.store(true, Ordering::Relaxed);
            logs.ended("id");
            for follower in &mut followers {
                while !follower.has_ended() {
                    follower.waken().await;
                }
            }
            drop(followers);
            assert!(logs.containers.lock().is_empty());
        });
    }

    #[test]
    fn log_follower_ends_without_the_exit_event() {
        simulated(|runtime| async move {
            let (logs, container) = (Arc::new(FollowedLogs::default()), Container::default());
            let mut follower = logs.follow(&runtime, "id", Path::new("/nowhere/0.log"), container.running());
            runtime.sleep(SETTLES_AFTER).await;
            container.ended.store(true, Ordering::Relaxed);
            while !follower.has_ended() {
                follower.waken().await;
            }
        });
    }

    #[test]
    fn log_follower_stays_while_the_runtime_does_not_answer() {
        simulated(|runtime| async move {
            let logs = Arc::new(FollowedLogs::default());
            let silent: StillRunning = Box::new(|| Box::pin(async { None }));
            let follower = logs.follow(&runtime, "id", Path::new("/nowhere/0.log"), silent);
            logs.ended("id");
            runtime.sleep(ASK_AFTER * 3).await;
            assert!(!follower.has_ended());
        });
    }
}
