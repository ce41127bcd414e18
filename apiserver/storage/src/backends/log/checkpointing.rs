//! The writing of checkpoints, and what each is for.

use super::checkpoint::CheckpointWriter;
use super::engine::Engine;
use super::format::CheckpointHeader;
use super::upkeep::TRIM_STEP;
use crate::StorageError;
use crate::live::Live;
use machinery_meta::Revision;
use machinery_runtime::{TaskEnded, WorkerStep};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;

/// Purpose of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The next start reads less.
    Recovery,
    /// Everything is written with the encryption of now, also where nothing has changed since the last one.
    Encryption,
    /// Room on a full disk: the history before it goes at once.
    Room,
}

/// Bytes of a checkpoint beside those of a record, at most: key, header, encryption and a part of the index.
const BESIDE_RECORD: u64 = 384;
/// Headers, the index and its end.
const BESIDE_RECORDS: u64 = 16 << 10;

/// Bytes that a checkpoint of a state takes, at most.
pub(super) fn needed_bytes(live: &Live) -> u64 {
    live.bytes + live.root.len() as u64 * BESIDE_RECORD + BESIDE_RECORDS
}

/// Takes the right to write the next checkpoint, after the one that is being written.
async fn claim(engine: &Engine) {
    loop {
        // Before the look, so that no end in between is missed.
        let ended = engine.checkpointed.notified();
        if !engine.checkpointing.swap(true, Ordering::AcqRel) {
            return;
        }
        ended.await;
    }
}

/// Gives that right back.
pub(super) fn release(engine: &Engine) {
    engine.checkpointing.store(false, Ordering::Release);
    engine.checkpointed.notify_waiters();
}

/// Writes a checkpoint of the state as it is now, in steps, on a thread for blocking work. The caller has the right to.
pub(super) fn write(engine: &Arc<Engine>, purpose: Purpose) -> oneshot::Receiver<Result<(), StorageError>> {
    let (own, owner) = (Arc::clone(engine), Arc::clone(engine));
    let (report, finished) = oneshot::channel();
    let (mut writer, mut report) = (None, Some(report));
    engine.begin_checkpoint();
    let step = move || {
        let ended = match step(&own, purpose, &mut writer) {
            Ok(false) => return WorkerStep::More,
            Ok(true) => Ok(()),
            Err(error) => {
                // The log has everything; the next checkpoint is tried when as much again was written.
                tracing::error!(error = error.chain(), "a checkpoint failed");
                if let Some(writer) = writer.take() {
                    note(own.files.room.discard(&writer.into_draft()));
                }
                Err(error)
            }
        };
        note(own.files.room.end_loan());
        release(&own);
        // Before the report: its receiver may begin the next checkpoint at once.
        if let Some(report) = report.take() {
            drop(report.send(ended));
        }
        WorkerStep::Done
    };
    engine.runtime.worker("storage checkpoint", step, move |message| {
        owner.panicked("a checkpoint", message)
    });
    finished
}

fn note(discarded: Result<(), StorageError>) {
    if let Err(error) = discarded {
        tracing::warn!(error = error.chain(), "cannot remove an unfinished checkpoint");
    }
}

/// `true` when there is nothing left to do.
fn step(
    engine: &Engine,
    purpose: Purpose,
    writer: &mut Option<CheckpointWriter>,
) -> Result<bool, StorageError> {
    let Some(begun) = writer else {
        *writer = begin(engine, purpose)?;
        return Ok(writer.is_none());
    };
    let Some(checkpoint) = begun.step()? else {
        return Ok(false);
    };
    *writer = None;
    let floor = Revision(checkpoint.header.compacted);
    engine.files.add_checkpoint(Arc::new(checkpoint));
    engine.drafts.lock().clear();
    if purpose == Purpose::Room {
        forget(engine, floor);
    }
    let floor = engine.feed.read().compacted();
    engine.files.prune(floor)?;
    Ok(true)
}

/// Begins a checkpoint; `None` where there is the same one already.
fn begin(engine: &Engine, purpose: Purpose) -> Result<Option<CheckpointWriter>, StorageError> {
    let (compacted, live) = {
        // Under one lock: a floor that the batch holds must not be missing beside it.
        let feed = engine.feed.read();
        (feed.compacted(), engine.live.read().clone())
    };
    let checkpoints = engine.files.checkpoints();
    let known = checkpoints.last().map(|checkpoint| checkpoint.revision());
    // Re-encryption writes the same state in another form.
    if known == Some(live.revision) && purpose != Purpose::Encryption {
        return Ok(None);
    }
    let loan = engine.files.room.take_loan();
    if loan.is_none() {
        has_room(engine, &live)?;
    }
    if purpose != Purpose::Room {
        engine.end_segment();
    }
    let compacted = if purpose == Purpose::Room {
        live.revision
    } else {
        compacted
    };
    let header = CheckpointHeader {
        store: engine.files.store,
        revision: live.revision.0,
        compacted: compacted.0,
        batch: live.batch,
    };
    let disk = Arc::clone(&engine.files.disk);
    let (dir, state) = (&engine.files.dir, (live.root, engine.options.encryption.clone()));
    let begun = match loan {
        Some(loan) => CheckpointWriter::begin_in(disk, dir, &loan, header, state),
        None => CheckpointWriter::begin(disk, dir, header, state),
    }?;
    engine.drafts.lock().push(begun.seals());
    Ok(Some(begun))
}

/// Checks that a checkpoint fits: one that does not would take the last room for nothing.
fn has_room(engine: &Engine, live: &Live) -> Result<(), StorageError> {
    let (files, needed) = (&engine.files, needed_bytes(live));
    match files.disk.space(&files.dir) {
        Ok(space) if space.available < needed => Err(StorageError::io(format!(
            "a checkpoint of {needed} bytes has no room, {} are free in {}",
            space.available,
            files.dir.display()
        ))(ErrorKind::StorageFull.into())),
        // A file system without that figure refuses the write itself.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Compacts the history before a checkpoint whose header names its own revision as the floor.
fn forget(engine: &Engine, floor: Revision) {
    engine.feed.write().compact(floor);
    engine.writer.lock().compacted(floor);
    while engine.feed.write().trim(TRIM_STEP) {}
    // Dropped without the lock, as a compaction does.
    let released = engine.pins.lock().release(floor);
    drop(released);
}

/// Writes everything with the encryption of now, and lets the compactions take what lies under the former one. Tries
/// again until there is room.
pub(super) async fn reencrypt(engine: Arc<Engine>) {
    loop {
        let written = encrypt_anew_once(&engine).await;
        engine
            .encryption_behind
            .store(written.is_err(), Ordering::Relaxed);
        match written {
            Ok(()) => {
                return tracing::info!(
                    "all stored values are written with the encryption configuration in use"
                );
            }
            Err(error) if error.is_no_space() => engine.runtime.sleep(engine.options.space_retry * 12).await,
            // Storage ends.
            Err(StorageError::Closed | StorageError::Unavailable(_)) => return,
            Err(error) => {
                return tracing::error!(
                    error = error.chain(),
                    "stored values are not written with the encryption configuration in use"
                );
            }
        }
    }
}

async fn encrypt_anew_once(engine: &Arc<Engine>) -> Result<(), StorageError> {
    claim(engine).await;
    write(engine, Purpose::Encryption)
        .await
        .map_err(|_| StorageError::Closed)??;
    let floor = engine.feed.read().compacted();
    let checkpoints = engine.files.checkpoints();
    if checkpoints.last().is_none_or(|newest| newest.revision() > floor) {
        return Ok(());
    }
    // An idle log is compacted up to here already: a batch ends the segment, and what is before it goes.
    engine.raise_floor(floor).await?;
    let own = Arc::clone(engine);
    match engine.runtime.blocking(move || own.files.prune(floor)).await {
        Ok(pruned) => pruned,
        Err(TaskEnded::Panicked(message)) => {
            engine.panicked("pruning", &message);
            Err(StorageError::Closed)
        }
        Err(TaskEnded::Cancelled) => Err(StorageError::Closed),
    }
}
