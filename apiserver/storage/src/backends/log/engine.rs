//! The parts together: submit, flush, publish.
//!
//! A write is compared, numbered and encoded under the writer's lock by the task that requests it. If no flush is under
//! way it starts one; otherwise its batch grows until the flush has finished. A flush writes one batch, syncs it,
//! publishes its changes (tree and feed together), and answers the callers. So an idle log commits at once, a busy one
//! batches exactly as long as the disk takes, and there is one thread hop each way.

use super::backup::Backup;
use super::checkpointing::{self, Purpose};
use super::files::{Appender, Files, Written};
use super::options::LogOptions;
use super::past_shares::PastShares;
use super::scrub::Scrubbed;
use super::seal;
use super::seals::Seals;
use super::upkeep::Expiries;
use super::writer::{Admitted, Group, Pending, Submitted, Writer};
use crate::cursor::{Changes, PastEvents};
use crate::feed::{Feed, Slot};
use crate::live::{Live, Pins};
use crate::quota::Ledger;
use crate::statistics::SyncTimes;
use crate::write::{SpaceEffect, check_group};
use crate::{Claim, Entry, Event, Key, StorageError, Write};
use futures::future::BoxFuture;
use machinery_meta::Revision;
use machinery_runtime::{Runtime, WorkerStep};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
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
    /// Bytes of writes that are taken up, in units of [`QUEUE_UNIT_BYTES`].
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

const QUEUE_UNIT_BYTES: usize = 1024;
/// Writes beyond 64 MiB wait before they are taken up.
const QUEUE_UNITS: usize = 64 << 10;
/// A deletion is tried so often on a full disk.
const REFUSED_AT_MOST: usize = 3;
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

/// The state of a flush. Each step does one thing, so that a simulation sees every state between them.
enum Flush {
    Begin,
    Write(Pending),
    Sync(Pending, Written),
    /// With the number the batch got, when it held anything.
    Publish(Pending, Option<u64>),
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

    pub(super) async fn commit(
        self: &Arc<Self>,
        claim: Claim,
        group: Vec<Write>,
    ) -> Result<Vec<Arc<Event>>, StorageError> {
        let done = self.commit_within_reserve(claim, group).await;
        done.map_err(|error| self.readable_conflict(error))
    }

    async fn commit_within_reserve(
        self: &Arc<Self>,
        claim: Claim,
        group: Vec<Write>,
    ) -> Result<Vec<Arc<Event>>, StorageError> {
        let bytes = check_group(&group)?;
        let frees = SpaceEffect::of(&group);
        if frees == SpaceEffect::Nothing {
            return self.commit_once(claim, group, bytes, frees).await;
        }
        // The batch that a full disk refuses takes deletions with it; they are tried again in the reserve.
        for _ in 1..REFUSED_AT_MOST {
            match self.commit_once(claim, group.clone(), bytes, frees).await {
                Err(StorageError::NoSpace) => {}
                answer => return answer,
            }
        }
        self.commit_once(claim, group, bytes, frees).await
    }

    async fn commit_once(
        self: &Arc<Self>,
        claim: Claim,
        group: Vec<Write>,
        bytes: usize,
        frees: SpaceEffect,
    ) -> Result<Vec<Arc<Event>>, StorageError> {
        self.has_disk_for(frees)?;
        let units =
            u32::try_from((bytes / QUEUE_UNIT_BYTES + 1).min(QUEUE_UNITS)).expect("bounded by the queue");
        let closed = |_| StorageError::Unavailable("storage is closed".to_owned());
        let permit = Arc::clone(&self.queue)
            .acquire_many_owned(units)
            .await
            .map_err(closed)?;
        let now = self.expiries.wall(&self.runtime);
        let admitted = Admitted {
            group,
            bytes,
            claim,
            permit,
        };
        let submitted = {
            let encryption = self.options.encryption.as_ref();
            let _unchanged = encryption.map(|encryption| encryption.hold());
            let mut writer = self.writer.lock();
            let live = self.live.read();
            writer.submit(&live.root, admitted, now)
        };
        let (done, answer) = match submitted {
            Submitted::Now(answer) => return answer,
            Submitted::After(done, answer) => (done, answer),
        };
        self.flush();
        let told = done.await;
        told.map_err(|_| StorageError::Unavailable("storage stopped".to_owned()))??;
        answer
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

    fn readable_conflict(&self, error: StorageError) -> StorageError {
        match error {
            StorageError::Conflict {
                index,
                key,
                current: Some(current),
            } => match self.readable(&current) {
                Ok(current) => StorageError::Conflict {
                    index,
                    key,
                    current: Some(current),
                },
                Err(error) => error,
            },
            other => other,
        }
    }

    fn has_disk_for(&self, frees: SpaceEffect) -> Result<(), StorageError> {
        let room = &self.files.room;
        let taken = match frees {
            SpaceEffect::Now => true,
            SpaceEffect::Soon => !room.is_full() || room.has_enough(),
            SpaceEffect::Nothing => !room.is_full(),
        };
        if taken {
            return Ok(());
        }
        room.count_refused();
        Err(StorageError::NoSpace)
    }

    pub(super) async fn raise_floor(self: &Arc<Self>, floor: Revision) -> Result<(), StorageError> {
        let mut answer = Err(StorageError::NoSpace);
        for _ in 0..REFUSED_AT_MOST {
            if !matches!(answer, Err(StorageError::NoSpace)) {
                break;
            }
            let done = self.writer.lock().submit_floor(floor)?;
            self.flush();
            answer = done
                .await
                .map_err(|_| StorageError::Unavailable("storage stopped".to_owned()))?;
        }
        answer
    }

    /// Starts a flush unless one is under way.
    fn flush(self: &Arc<Self>) {
        {
            let mut writer = self.writer.lock();
            if writer.flushing {
                return;
            }
            writer.flushing = true;
        }
        let engine = Arc::clone(self);
        let mut state = Flush::Begin;
        let mut buffer = Vec::new();
        let step = move || engine.step(&mut state, &mut buffer);
        let owner = Arc::clone(self);
        let panicked = move |message: &str| owner.panicked("the flush", message);
        if self.files.disk.sync_is_free() && !self.runtime.is_simulated() {
            self.runtime.worker_here("storage flush", step, panicked);
        } else {
            self.runtime.worker("storage flush", step, panicked);
        }
    }

    /// A worker panicked: what it left half done is unknown, so nothing goes on.
    pub(super) fn panicked(&self, worker: &str, message: &str) {
        let error = StorageError::Unavailable(format!("{worker} of storage ended: {message}"));
        self.fatal(Vec::new(), &error);
    }

    fn step(self: &Arc<Self>, state: &mut Flush, buffer: &mut Vec<u8>) -> WorkerStep {
        let next = match std::mem::replace(state, Flush::Begin) {
            Flush::Begin => match self.writer.lock().take(std::mem::take(buffer)) {
                None => return WorkerStep::Done,
                Some(batch) if batch.records == 0 => Ok(Flush::Publish(batch, None)),
                Some(batch) => Ok(Flush::Write(batch)),
            },
            Flush::Write(mut batch) => {
                let written = self.appender.lock().write(
                    &self.files,
                    &mut batch.bytes,
                    batch.records,
                    batch.first_revision,
                );
                match written {
                    Ok(written) => Ok(Flush::Sync(batch, written)),
                    Err(error) if error.is_no_space() => {
                        self.refuse(batch.groups);
                        Ok(Flush::Begin)
                    }
                    Err(error) => Err((batch, error)),
                }
            }
            Flush::Sync(batch, written) => {
                let begun = self.runtime.monotonic();
                let synced = self.appender.lock().sync(&self.files, &written);
                self.syncs.add(self.runtime.monotonic().saturating_sub(begun));
                match synced {
                    Ok(()) => Ok(Flush::Publish(batch, Some(written.batch))),
                    Err(error) if error.is_no_space() => match self.supersede(batch.first_revision) {
                        Ok(()) => {
                            self.refuse(batch.groups);
                            Ok(Flush::Begin)
                        }
                        Err(error) => Err((batch, error)),
                    },
                    Err(error) => Err((batch, error)),
                }
            }
            Flush::Publish(mut batch, number) => {
                *buffer = std::mem::take(&mut batch.bytes);
                self.publish(batch.groups, number);
                self.checkpoint_if_due();
                Ok(Flush::Begin)
            }
        };
        match next {
            Ok(next) => {
                *state = next;
                WorkerStep::More
            }
            Err((batch, error)) => {
                self.fatal(batch.groups, &error);
                WorkerStep::Done
            }
        }
    }

    /// A sync found no room (a quota, a file system over the network): the batch may be there as a whole, so a new segment
    /// takes its number away from it before any caller gets the answer that it was not written.
    fn supersede(&self, first_revision: u64) -> Result<(), StorageError> {
        self.files.room.fill();
        self.appender.lock().begin_segment(&self.files, first_revision)
    }

    /// The disk refused a batch: nothing of it happened, nor of what was queued behind it.
    fn refuse(&self, batch: Vec<Group>) {
        self.files.room.fill();
        let refused = {
            let mut writer = self.writer.lock();
            let published = self.live.read().revision;
            writer.take_back(batch, published)
        };
        for group in refused {
            self.files.room.count_refused();
            drop(group.done.send(Err(StorageError::NoSpace)));
        }
    }

    /// Makes durable changes visible, all at once, then answers their callers.
    fn publish(&self, groups: Vec<Group>, batch: Option<u64>) {
        let mut wake: Vec<Waker> = Vec::new();
        let now = self.runtime.monotonic();
        let mut floors = Revision::ZERO;
        let left = {
            let mut feed = self.feed.write();
            let left = {
                let mut live = self.live.write();
                for event in groups.iter().flat_map(|group| &group.events) {
                    live.apply(event);
                }
                live.batch = batch.unwrap_or(live.batch);
                live.left
            };
            for group in &groups {
                for event in &group.events {
                    feed.push(Arc::clone(event), now, &mut wake);
                }
                if let Some(floor) = group.floor {
                    feed.compact(floor);
                    floors = floors.max(floor);
                }
            }
            left
        };
        for event in groups.iter().flat_map(|group| &group.events) {
            self.expiries.changed(event, &self.runtime);
        }
        {
            let mut writer = self.writer.lock();
            writer.published(&groups);
            writer.compacted(floors);
        }
        for group in groups {
            drop(group.permit);
            // A caller that went away does not want to know.
            drop(group.done.send(Ok(())));
        }
        for waker in wake {
            waker.wake();
        }
        // Dropped without the lock and when all callers have been answered: one may hold many entries.
        let ended = self.pins.lock().end_large(left);
        drop(ended);
    }

    /// A write or sync failed, or a worker panicked: nothing is certain any more, so nothing goes on.
    fn fatal(&self, batch: Vec<Group>, error: &StorageError) {
        tracing::error!(error = error.chain(), "storage failed, the process must end");
        let unknown = StorageError::Unavailable(format!("storage failed: {error}"));
        let failed = self.writer.lock().fail(batch, &unknown);
        self.end_watches();
        (self.options.on_fatal)(error);
        for group in failed {
            drop(group.done.send(Err(unknown.clone())));
        }
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

    /// Lets go of files and lock.
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
        Ok(Backup::of(self.files.store, state, encryption, Some(permit)))
    }

    fn checkpoint_if_due(self: &Arc<Self>) {
        let appended = self.appender.lock().since_checkpoint;
        let stored = self.live.read().bytes;
        let due = appended >= self.options.checkpoint_bytes.max(stored / 2)
            || self.scrubbed.heals.load(Ordering::Acquire);
        if due && !self.files.room.is_full() && !self.checkpointing.swap(true, Ordering::AcqRel) {
            self.scrubbed.heals.store(false, Ordering::Release);
            drop(checkpointing::write(self, Purpose::Recovery));
        }
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
