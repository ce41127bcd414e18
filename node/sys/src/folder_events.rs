//! Changes in folders, over one inotify descriptor for all of them: the kernel gives a user 128 descriptors, and the
//! processes of pods that run as root count among the same user's.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use machinery_runtime::{Runtime, Watched};
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A file of a watched folder is written, made, renamed or removed.
const CHANGES: AddWatchFlags = AddWatchFlags::IN_MODIFY
    .union(AddWatchFlags::IN_CREATE)
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_MOVED_FROM)
    .union(AddWatchFlags::IN_MOVED_TO)
    .union(AddWatchFlags::IN_ONLYDIR);

/// Delay before events are read: the kernel merges unread equal ones, so that a file written in many steps is one change.
const GATHERED_FOR: Duration = Duration::from_millis(20);
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The folders that are watched. [`FolderEvents::run`] hands the changes out.
#[derive(Debug)]
pub struct FolderEvents {
    inotify: Inotify,
    ready: AsyncFd<OwnedFd>,
    folders: Mutex<Folders>,
}

type Folders = HashMap<WatchDescriptor, Folder>;

#[derive(Debug)]
struct Folder {
    state: Arc<Watched<State>>,
    watches: usize,
}

/// Number of changes of a folder, and whether it is gone.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    changes: u64,
    gone: bool,
}

/// A watch of one folder, which ends when it is dropped.
#[derive(Debug)]
pub struct FolderWatch {
    of: Arc<FolderEvents>,
    descriptor: WatchDescriptor,
    state: Arc<Watched<State>>,
}

/// One reader of the changes of a folder, as long as its watch lasts.
#[derive(Debug)]
pub struct FolderChanges {
    state: Arc<Watched<State>>,
    seen: u64,
}

impl FolderEvents {
    /// Watches nothing yet.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn open() -> io::Result<Arc<Self>> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let ready = inotify.as_fd().try_clone_to_owned()?;
        // SAFETY: the descriptor is owned, is never given away, and is closed only when it is dropped.
        #[expect(unsafe_code, reason = "tokio takes a type's word for its descriptor")]
        let ready = unsafe { AsyncFd::register_with_interest(ready, Interest::READABLE) }?;
        Ok(Arc::new(Self {
            inotify,
            ready,
            folders: Mutex::default(),
        }))
    }

    fn folders(&self) -> MutexGuard<'_, Folders> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches the files directly in a folder.
    pub fn watch(self: &Arc<Self>, folder: &Path) -> io::Result<FolderWatch> {
        // Locked around the kernel's call: `hand_out` must not see an event of a descriptor that has no entry
        // yet.
        let mut folders = self.folders();
        // The kernel knows a folder that is watched already by the descriptor that it has.
        let descriptor = self.inotify.add_watch(folder, CHANGES)?;
        let known = folders.entry(descriptor).or_insert_with(|| Folder {
            state: Arc::default(),
            watches: 0,
        });
        known.watches += 1;
        Ok(FolderWatch {
            of: Arc::clone(self),
            descriptor,
            state: Arc::clone(&known.state),
        })
    }

    /// Hands changes out, for ever.
    pub async fn run(&self, runtime: &Runtime) -> io::Result<()> {
        loop {
            let mut ready = self.ready.readable().await?;
            match self.inotify.read_events() {
                Ok(events) => events.iter().for_each(|event| self.hand_out(event)),
                Err(Errno::EAGAIN) => {
                    ready.clear_ready();
                    runtime.sleep(GATHERED_FOR).await;
                }
                // What has changed is not known: readers look.
                Err(error) => {
                    tracing::warn!(%error, "changes in folders cannot be read");
                    self.folders().values().for_each(Folder::change);
                    runtime.sleep(TRY_AGAIN_AFTER).await;
                }
            }
        }
    }

    fn hand_out(&self, event: &InotifyEvent) {
        let mut folders = self.folders();
        // The kernel's queue was full and events are lost: every reader checks its folder.
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            folders.values().for_each(Folder::change);
        } else if event.mask.contains(AddWatchFlags::IN_IGNORED) {
            // The folder is gone, and the kernel's watch with it.
            if let Some(own) = folders.remove(&event.wd) {
                own.update(|state| state.gone = true);
            }
        } else if let Some(own) = folders.get(&event.wd) {
            own.change();
        }
    }
}

impl Folder {
    fn change(&self) {
        self.update(|state| state.changes += 1);
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        self.state.change(|state| {
            change(state);
            true
        });
    }
}

impl FolderWatch {
    /// Changes from now on.
    pub fn changes(&self) -> FolderChanges {
        FolderChanges {
            state: Arc::clone(&self.state),
            seen: self.state.get().changes,
        }
    }
}

impl FolderChanges {
    /// Returns when there was a change since the last; false when the folder is gone.
    pub async fn next(&mut self) -> bool {
        let seen = self.seen;
        let news = |state: &State| state.gone || state.changes > seen;
        let state = self.state.wait_for(news).await;
        self.seen = state.changes;
        !state.gone
    }
}

impl Drop for FolderWatch {
    fn drop(&mut self) {
        let mut folders = self.of.folders();
        let Some(own) = folders.get_mut(&self.descriptor) else {
            return;
        };
        own.watches -= 1;
        // The kernel has one watch per folder for all readers; only the last one may remove it.
        if own.watches == 0 {
            folders.remove(&self.descriptor);
            // Gone by itself where the folder was removed meanwhile.
            let _ = self.of.inotify.rm_watch(self.descriptor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running() -> Arc<FolderEvents> {
        let events = FolderEvents::open().unwrap();
        let (own, runtime) = (Arc::clone(&events), Runtime::real());
        runtime
            .clone()
            .spawn("folder events", async move { own.run(&runtime).await })
            .detach();
        events
    }

    #[tokio::test]
    async fn folder_watch_sees_files_written_and_renamed() {
        let (events, folder) = (running(), tempfile::tempdir().unwrap());
        let log = folder.path().join("0.log");
        std::fs::write(&log, "one").unwrap();
        let watch = events.watch(folder.path()).unwrap();
        let second = events.watch(folder.path()).unwrap();
        let (mut changes, mut others) = (watch.changes(), second.changes());
        std::fs::write(&log, "two").unwrap();
        assert!(changes.next().await && others.next().await);
        // The others go on without it.
        drop(second);
        std::fs::rename(&log, folder.path().join("0.log.1")).unwrap();
        assert!(changes.next().await);
        std::fs::remove_file(folder.path().join("0.log.1")).unwrap();
        assert!(changes.next().await);
        drop(watch);
        assert!(events.folders().is_empty());
    }

    #[tokio::test]
    async fn folder_watch_ends_with_its_folder() {
        let (events, folder) = (running(), tempfile::tempdir().unwrap());
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let watch = events.watch(&inner).unwrap();
        let mut changes = watch.changes();
        std::fs::remove_dir(&inner).unwrap();
        while changes.next().await {}
        assert!(events.folders().is_empty());
        drop(watch);
        events.watch(&inner).unwrap_err();
    }
}
