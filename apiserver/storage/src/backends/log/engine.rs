//! The parts together: submit, flush, publish.
//!
//! A write is compared, numbered and encoded under the writer's lock by the task that asks for it. If no flush is under
//! way it starts one; otherwise its batch grows until the flush has finished. A flush writes one batch, syncs it,
//! publishes its changes (tree and feed together), and tells the callers. So an idle log commits at once, a busy one
//! batches exactly as long as the disk takes, and there is one thread hop each way.

use super::feed::Feed;
use super::files::{Appender, Files, Written};
use super::live::{Live, Pins};
use super::options::LogOptions;
use super::upkeep::Expiries;
use super::writer::{Group, Pending, Submitted, Writer, check_group};
use crate::statistics::SyncTimes;
use crate::{Event, StorageError, Write};
use machinery_meta::Revision;
use machinery_runtime::{Runtime, WorkerStep};
use parking_lot::{Mutex, RwLock};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use tokio::sync::Semaphore;

/// The running log.
///
/// Lock order: appender, writer, feed, live, pins, expiries. Nobody waits for a disk or another task under any lock but
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
    queue: Semaphore,
    /// How many reads of the past may run at once.
    pub(super) past_reads: Semaphore,
    pub(super) checkpointing: AtomicBool,
    pub(super) syncs: SyncTimes,
}

const QUEUE_UNIT_BYTES: usize = 1024;
/// Writes beyond 64 MiB wait before they are taken up.
const QUEUE_UNITS: usize = 64 << 10;
/// Each may hold a few megabytes.
const PAST_READS: usize = 2;

/// Where a flush stands. Each step does one thing, so that a simulation sees every state between them.
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
        let expiries = Expiries::of(&live);
        Self {
            runtime,
            options,
            writer: Mutex::new(Writer::new(live.revision)),
            feed: RwLock::new(feed),
            live: RwLock::new(live),
            pins: Mutex::default(),
            expiries,
            files,
            appender: Mutex::new(appender),
            queue: Semaphore::new(QUEUE_UNITS),
            past_reads: Semaphore::new(PAST_READS),
            checkpointing: AtomicBool::new(false),
            syncs: SyncTimes::default(),
        }
    }

    pub(super) async fn commit(self: &Arc<Self>, group: Vec<Write>) -> Result<Vec<Arc<Event>>, StorageError> {
        let bytes = check_group(&group)?;
        let units =
            u32::try_from((bytes / QUEUE_UNIT_BYTES + 1).min(QUEUE_UNITS)).expect("bounded by the queue");
        let closed = |_| StorageError::Unavailable("storage is closed".to_owned());
        let permit = self.queue.acquire_many(units).await.map_err(closed)?;
        let now = u64::try_from(self.runtime.now().as_second()).unwrap_or(0);
        let submitted = {
            let mut writer = self.writer.lock();
            let live = self.live.read();
            writer.submit(&live.root, group, now)
        };
        let (done, answer) = match submitted {
            Submitted::Now(answer) => return answer,
            Submitted::After(done, answer) => (done, answer),
        };
        self.flush();
        let told = done.await;
        drop(permit);
        told.map_err(|_| StorageError::Unavailable("storage stopped".to_owned()))??;
        answer
    }

    pub(super) async fn raise_floor(self: &Arc<Self>, floor: Revision) -> Result<(), StorageError> {
        let done = self.writer.lock().submit_floor(floor)?;
        self.flush();
        done.await
            .map_err(|_| StorageError::Unavailable("storage stopped".to_owned()))?
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
        if self.files.disk.sync_is_free() && !self.runtime.is_simulated() {
            run_here(step);
        } else {
            self.runtime.worker("storage flush", step);
        }
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
                    Err(error) => Err((batch, error)),
                }
            }
            Flush::Sync(batch, written) => {
                let begun = self.runtime.monotonic();
                let synced = self.appender.lock().sync(&written);
                self.syncs.add(self.runtime.monotonic().saturating_sub(begun));
                match synced {
                    Ok(()) => Ok(Flush::Publish(batch, Some(written.batch))),
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

    /// Makes durable changes visible, all at once, then tells their callers.
    fn publish(&self, groups: Vec<Group>, batch: Option<u64>) {
        let mut wake: Vec<Waker> = Vec::new();
        let now = self.runtime.monotonic();
        {
            let mut feed = self.feed.write();
            {
                let mut live = self.live.write();
                for event in groups.iter().flat_map(|group| &group.events) {
                    live.apply(event);
                }
                live.batch = batch.unwrap_or(live.batch);
            }
            for group in &groups {
                for event in &group.events {
                    feed.push(Arc::clone(event), now, &mut wake);
                }
                if let Some(floor) = group.floor {
                    feed.compact(floor);
                }
            }
        }
        for event in groups.iter().flat_map(|group| &group.events) {
            self.expiries.changed(event);
        }
        self.writer.lock().published(&groups);
        for group in groups {
            // A caller that went away does not want to know.
            drop(group.done.send(Ok(())));
        }
        for waker in wake {
            waker.wake();
        }
    }

    /// A write or sync failed: nothing is certain any more, so nothing goes on.
    fn fatal(&self, batch: Vec<Group>, error: &StorageError) {
        tracing::error!(%error, "storage failed, the process must end");
        let unknown = StorageError::Unavailable(format!("the disk failed: {error}"));
        let rest = self.writer.lock().fail(&unknown);
        self.end_watches();
        (self.options.on_fatal)(error);
        for group in batch.into_iter().chain(rest.groups) {
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

    /// Without waiting: refuses what comes and ends the watches. What is under way ends by itself.
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

    /// Asks for a new segment, so that recovery from a checkpoint taken now reads little before it.
    pub(super) fn begin_checkpoint(&self) {
        let mut appender = self.appender.lock();
        appender.roll = true;
        appender.since_checkpoint = 0;
    }

    fn checkpoint_if_due(self: &Arc<Self>) {
        let appended = self.appender.lock().since_checkpoint;
        let stored = self.live.read().bytes;
        if appended >= self.options.checkpoint_bytes.max(stored / 2)
            && !self.checkpointing.swap(true, Ordering::AcqRel)
        {
            super::upkeep::checkpoint(self);
        }
    }
}

fn run_here(mut step: impl FnMut() -> WorkerStep) {
    while step() == WorkerStep::More {}
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("dir", &self.options.dir)
            .finish_non_exhaustive()
    }
}
