//! The parts together: submit, flush, publish.
//!
//! A write is compared, numbered and encoded under the writer's lock by the task that requests it. If no flush is under
//! way it starts one; otherwise its batch grows until the flush has finished. A flush writes one batch, syncs it,
//! publishes its changes (tree and feed together), and answers the callers. So an idle log commits at once, a busy one
//! batches exactly as long as the disk takes, and there is one thread hop each way.
//!
//! [`commits`] is the callers' side, [`flushing`] the disk's; the state of both and its end are here.

mod commits;
mod flushing;

use super::backup::Backup;
use super::files::{Appender, Files};
use super::options::LogOptions;
use super::past_shares::PastShares;
use super::scrub::Scrubbed;
use super::seal;
use super::seals::Seals;
use super::upkeep::Expiries;
use super::writer::Writer;
use crate::cursor::{Changes, PastEvents};
use crate::feed::{Feed, Slot};
use crate::live::{Live, Pins};
use crate::quota::Ledger;
use crate::statistics::SyncTimes;
use crate::{Entry, Event, Key, StorageError};
use futures::future::BoxFuture;
use machinery_meta::Revision;
use machinery_runtime::Runtime;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::{Notify, Semaphore};

/// The running log.
///
/// Lock order: the encryption's configuration, appender, writer, feed, live, pins, expiries. No task waits for a disk or another task under any lock but
/// the appender's.
pub(super) struct Engine {
    /// In the scope of this instance.
    pub(super) runtime: Runtime,
    pub(super) options: LogOptions,
    pub(super) writer: Mutex<Writer>,
    pub(super) feed: RwLock<Feed>,
    pub(super) live: RwLock<Live>,
    pub(super) pins: Mutex<Pins>,
    pub(super) expiries: Expiries,
    pub(super) files: Files,
    appender: Mutex<Appender>,
    /// Bytes of writes that are taken up, in units of [`commits::QUEUE_UNIT_BYTES`].
    queue: Arc<Semaphore>,
    /// Permits for reads of the past in the log.
    pub(super) past_reads: Arc<Semaphore>,
    /// Permits for states that are assembled from memory: none waits for the log.
    pub(super) undone: Arc<Semaphore>,
    pub(super) checkpointing: AtomicBool,
    /// Notified when one has ended.
    pub(super) checkpointed: Notify,
    /// Keys whose records were sealed when the log was opened, as long as no key opens them.
    pub(super) sealed: Mutex<BTreeSet<Key>>,
    /// Keys of the checkpoint that is being written, and of those that failed since the last one.
    pub(super) drafts: Mutex<Vec<Arc<Seals>>>,
    /// The last attempt to write everything with the encryption in use has failed.
    pub(super) encryption_behind: AtomicBool,
    pub(super) syncs: SyncTimes,
    pub(super) scrubbed: Scrubbed,
    /// One backup at a time: each pins a whole state.
    backups: Arc<Semaphore>,
}

/// Writes beyond 64 MiB wait before they are taken up.
const QUEUE_UNITS: usize = 64 << 10;
/// Each may hold a few megabytes.
const PAST_READS: usize = 2;

/// Largest part of a file system that the log keeps for reads of the past.
const PART_OF_DISK: u64 = 8;

/// Kept bytes below which nothing is shared: of a small disk a few ordinary objects would be a share.
const SHARED_FROM: u64 = 64 << 20;

/// Bytes of changes that namespaces share; without a bound on a small disk.
fn shared_log_bytes(options: &LogOptions, files: &Files) -> u64 {
    let kept = kept_log_bytes(options, files);
    let is_small = kept < SHARED_FROM.min(options.kept_log_bytes);
    if is_small { u64::MAX } else { kept }
}

/// Bytes of changes that are kept at most; without a bound where nothing is compacted by itself.
pub(super) fn kept_log_bytes(options: &LogOptions, files: &Files) -> u64 {
    if options.retention.is_zero() {
        return u64::MAX;
    }
    let space = files.disk.space(&files.dir);
    options
        .kept_log_bytes
        .min(space.map_or(u64::MAX, |space| space.total / PART_OF_DISK))
}

impl Engine {
    pub(super) fn new(
        runtime: Runtime,
        options: LogOptions,
        live: Live,
        feed: Feed,
        files: Files,
        appender: Appender,
    ) -> Self {
        let expiries = Expiries::of(&live, &runtime, options.longest_ttl);
        let encryption = options.encryption.clone();
        let sealed = live.root.values().filter(|entry| entry.record.is_sealed());
        let sealed = sealed.map(|entry| entry.key.clone()).collect();
        let ledger = Ledger::of(options.quota.clone(), live.root.values());
        let shared = (shared_log_bytes(&options, &files), options.retention);
        let before = (files.bytes_after(feed.compacted()).unwrap_or(0), live.revision);
        let system = &options.quota.system_namespaces;
        let shares = PastShares::new(shared, system, runtime.random_u64(), before);
        let pins = Pins::new(options.pinned_bytes);
        Self {
            runtime,
            options,
            writer: Mutex::new(Writer::new(live.revision, encryption, ledger, shares)),
            feed: RwLock::new(feed),
            live: RwLock::new(live),
            pins: Mutex::new(pins),
            expiries,
            files,
            appender: Mutex::new(appender),
            queue: Arc::new(Semaphore::new(QUEUE_UNITS)),
            past_reads: Arc::new(Semaphore::new(PAST_READS)),
            undone: Arc::new(Semaphore::new(PAST_READS)),
            checkpointing: AtomicBool::new(false),
            checkpointed: Notify::new(),
            sealed: Mutex::new(sealed),
            drafts: Mutex::default(),
            encryption_behind: AtomicBool::new(false),
            syncs: SyncTimes::default(),
            scrubbed: Scrubbed::default(),
            backups: Arc::new(Semaphore::new(1)),
        }
    }

    /// The entry as a reader is given it; one that was sealed when it came into memory is kept open from now on.
    ///
    /// Errors: [`StorageError::Sealed`], where still no key fits.
    pub(super) fn readable(&self, entry: &Arc<Entry>) -> Result<Arc<Entry>, StorageError> {
        if !entry.record.is_sealed() {
            return Ok(Arc::clone(entry));
        }
        let opened = seal::opened(self.options.encryption.as_deref(), entry)?;
        self.replace(Arc::clone(&opened));
        Ok(opened)
    }

    /// Keeps an entry in another form, as long as it is the newest of its key; whether it was.
    pub(super) fn replace(&self, entry: Arc<Entry>) -> bool {
        let mut writer = self.writer.lock();
        if writer.is_queued(&entry.key) {
            // What a queued change was counted to replace must not change.
            return false;
        }
        let replaced = self.live.write().replace(entry);
        replaced.iter().for_each(|recached| writer.recached(recached));
        replaced.is_some()
    }

    fn end_watches(&self) {
        let wakers = self.feed.write().close();
        for waker in wakers {
            waker.wake();
        }
    }

    /// Refuses what comes, finishes what was taken up, ends the watches.
    pub(super) async fn drain(self: &Arc<Self>) {
        self.queue.close();
        let done = self
            .writer
            .lock()
            .stop(StorageError::Unavailable("storage is closed".to_owned()));
        self.flush();
        // An error means that it has failed before; then there is nothing to wait for.
        drop(done.await);
        self.end_watches();
    }

    /// Refuses new work and ends the watches, without waiting. Work under way ends by itself.
    pub(super) fn stop(self: &Arc<Self>) {
        self.queue.close();
        drop(
            self.writer
                .lock()
                .stop(StorageError::Unavailable("storage is closed".to_owned())),
        );
        self.end_watches();
    }

    /// Closes the files and releases the lock.
    pub(super) fn close_files(&self) {
        self.appender.lock().close();
        self.files.close();
    }

    /// The next checkpoint is due when as much again was written, whatever becomes of this one.
    pub(super) fn begin_checkpoint(&self) {
        self.appender.lock().since_checkpoint = 0;
    }

    /// Requests a new segment, so that recovery from a checkpoint taken now reads little before it. On a full disk that
    /// takes a piece of the reserve: only for a checkpoint that has room.
    pub(super) fn end_segment(&self) {
        self.appender.lock().roll = true;
    }

    /// Begins a backup of what is published now.
    pub(super) fn backup(&self) -> Result<Backup, StorageError> {
        let permit = Arc::clone(&self.backups).try_acquire_owned();
        let permit = permit.map_err(|_| StorageError::Busy)?;
        let live = self.live.read();
        let state = (live.revision, live.root.clone(), live.bytes);
        let encryption = self.options.encryption.clone();
        // Checked at the beginning: a backup that cannot encrypt would fail in the middle of the client's
        // download.
        encryption.as_ref().map_or(Ok(()), |own| own.check_seals())?;
        Ok(Backup::of(self.files.store, state, encryption, Some(permit)))
    }
}

impl Changes for Engine {
    fn feed(&self) -> &RwLock<Feed> {
        &self.feed
    }

    fn past(
        self: Arc<Self>,
        slot: Arc<Slot>,
        from: Revision,
        until: Revision,
        max: usize,
    ) -> BoxFuture<'static, Result<PastEvents, StorageError>> {
        Box::pin(self.past_events(slot, from, until, max))
    }

    fn readable(&self, events: Vec<Arc<Event>>) -> Result<Vec<Arc<Event>>, StorageError> {
        seal::readable(self.options.encryption.as_deref(), events)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("dir", &self.options.dir)
            .finish_non_exhaustive()
    }
}
