//! Flushes: a batch is written, synced and published, and its callers are answered.

use super::Engine;
use crate::StorageError;
use crate::backends::log::checkpointing::{self, Purpose};
use crate::backends::log::files::Written;
use crate::backends::log::writer::{Group, Pending};
use machinery_meta::Revision;
use machinery_runtime::WorkerStep;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

/// The state of a flush. Each step does one thing, so that a simulation sees every state between them.
enum Flush {
    Begin,
    Write(Pending),
    Sync(Pending, Written),
    /// With the number the batch got, when it held anything.
    Publish(Pending, Option<u64>),
}

/// The state that follows, or a batch that cannot be written, which ends the engine.
type Next = Result<Flush, (Pending, StorageError)>;

impl Engine {
    /// Starts a flush unless one is under way.
    pub(super) fn flush(self: &Arc<Self>) {
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
        // Without a real sync a change of threads costs more than the flush; the simulator keeps its own order
        // of steps.
        if self.files.disk.sync_is_free() && !self.runtime.is_simulated() {
            self.runtime.worker_here("storage flush", step, panicked);
        } else {
            self.runtime.worker("storage flush", step, panicked);
        }
    }

    fn step(self: &Arc<Self>, state: &mut Flush, buffer: &mut Vec<u8>) -> WorkerStep {
        let next = match std::mem::replace(state, Flush::Begin) {
            Flush::Begin => match self.writer.lock().take(std::mem::take(buffer)) {
                None => return WorkerStep::Done,
                // Only answers that waited for their turn: nothing to write or sync.
                Some(batch) if batch.records == 0 => Ok(Flush::Publish(batch, None)),
                Some(batch) => Ok(Flush::Write(batch)),
            },
            Flush::Write(batch) => self.write_batch(batch),
            Flush::Sync(batch, written) => self.sync_batch(batch, &written),
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

    fn write_batch(&self, mut batch: Pending) -> Next {
        let (records, first) = (batch.records, batch.first_revision);
        let mut appender = self.appender.lock();
        let written = appender.write(&self.files, &mut batch.bytes, records, first);
        drop(appender);
        match written {
            Ok(written) => Ok(Flush::Sync(batch, written)),
            Err(error) if error.is_no_space() => {
                self.refuse(batch.groups);
                Ok(Flush::Begin)
            }
            Err(error) => Err((batch, error)),
        }
    }

    fn sync_batch(&self, batch: Pending, written: &Written) -> Next {
        let begun = self.runtime.monotonic();
        let synced = self.appender.lock().sync(&self.files, written);
        self.syncs.add(self.runtime.monotonic().saturating_sub(begun));
        let superseded = match synced {
            Ok(()) => return Ok(Flush::Publish(batch, Some(written.batch))),
            Err(error) if error.is_no_space() => self.supersede(batch.first_revision),
            Err(error) => Err(error),
        };
        match superseded {
            Ok(()) => {
                self.refuse(batch.groups);
                Ok(Flush::Begin)
            }
            Err(error) => Err((batch, error)),
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
            // Feed before live, and both held: a watch that begins between the two would miss a change, or see
            // it twice.
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
            // After `live` has the changes: the overlay is what hides the older entries there until then.
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

    fn checkpoint_if_due(self: &Arc<Self>) {
        let appended = self.appender.lock().since_checkpoint;
        let stored = self.live.read().bytes;
        // Half of what is stored: the cost of checkpoints stays in proportion to the writes, and recovery reads
        // at most that much log.
        let due = appended >= self.options.checkpoint_bytes.max(stored / 2)
            || self.scrubbed.heals.load(Ordering::Acquire);
        if due && !self.files.room.is_full() && !self.checkpointing.swap(true, Ordering::AcqRel) {
            self.scrubbed.heals.store(false, Ordering::Release);
            drop(checkpointing::write(self, Purpose::Recovery));
        }
    }

    /// A worker panicked: what it left half done is unknown, so nothing goes on.
    pub(crate) fn panicked(&self, worker: &str, message: &str) {
        let error = StorageError::Unavailable(format!("{worker} of storage ended: {message}"));
        self.fatal(Vec::new(), &error);
    }

    /// A write or sync failed, or a worker panicked: nothing is certain any more, so nothing goes on.
    fn fatal(&self, batch: Vec<Group>, error: &StorageError) {
        tracing::error!(error = error.chain(), "storage failed, the process must end");
        let unknown = StorageError::Unavailable(format!("storage failed: {error}"));
        // First of all no new write is taken up; then watches end, and callers learn last that their outcome is
        // unknown.
        let failed = self.writer.lock().fail(batch, &unknown);
        self.end_watches();
        (self.options.on_fatal)(error);
        for group in failed {
            drop(group.done.send(Err(unknown.clone())));
        }
    }
}
