//! What the log does by itself: expiry, compaction, checkpoints. Each sleeps until there is something to do.

use super::checkpoint::CheckpointWriter;
use super::engine::Engine;
use super::format::CheckpointHeader;
use super::live::Live;
use crate::{Event, Expect, Interest, Key, Op, Prefix, StorageError, Write};
use machinery_meta::Revision;
use machinery_runtime::WorkerStep;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::Notify;

/// Which entries end when.
#[derive(Debug, Default)]
pub(super) struct Expiries {
    order: Mutex<BTreeSet<(u64, Key)>>,
    /// Told when the first of them changed.
    changed: Notify,
}

/// Changes dropped from memory under one hold of the lock.
const TRIM_STEP: usize = 256;
/// Entries deleted at once when their time has come.
const EXPIRE_AT_ONCE: usize = 64;

impl Expiries {
    pub(super) fn of(live: &Live) -> Self {
        let order = live
            .root
            .values()
            .filter_map(|entry| Some((entry.expires?, entry.key.clone())))
            .collect();
        Self {
            order: Mutex::new(order),
            changed: Notify::new(),
        }
    }

    pub(super) fn changed(&self, event: &Event) {
        let (old, new) = (event.previous.as_ref(), event.entry.as_ref());
        let (old, new) = (
            old.and_then(|entry| entry.expires),
            new.and_then(|entry| entry.expires),
        );
        if old.is_none() && new.is_none() {
            return;
        }
        let mut order = self.order.lock();
        if let Some(old) = old {
            order.remove(&(old, event.key.clone()));
        }
        if let Some(new) = new {
            order.insert((new, event.key.clone()));
            if order.first().is_some_and(|(first, _)| *first == new) {
                self.changed.notify_one();
            }
        }
    }

    fn first(&self) -> Option<u64> {
        self.order.lock().first().map(|(seconds, _)| *seconds)
    }

    fn due(&self, now: u64) -> Vec<Key> {
        let order = self.order.lock();
        let due = order
            .iter()
            .take_while(|(seconds, _)| *seconds <= now)
            .take(EXPIRE_AT_ONCE);
        due.map(|(_, key)| key.clone()).collect()
    }
}

/// Deletes entries when their time has come. Ends with its scope.
pub(super) async fn expire(engine: Arc<Engine>) {
    loop {
        let Some(first) = engine.expiries.first() else {
            engine.expiries.changed.notified().await;
            continue;
        };
        let now = u64::try_from(engine.runtime.now().as_second()).unwrap_or(0);
        if first > now {
            let wait = engine.runtime.sleep(Duration::from_secs(first - now));
            tokio::select! {
                biased;
                () = engine.expiries.changed.notified() => {}
                () = wait => {}
            }
            continue;
        }
        let due = engine.expiries.due(now);
        let deletions = due.into_iter().map(|key| expire_one(&engine, key, now));
        for result in futures::future::join_all(deletions).await {
            match result {
                Ok(()) | Err(StorageError::Conflict { .. }) => {}
                Err(error) => {
                    tracing::debug!(%error, "expiry ends");
                    return;
                }
            }
        }
    }
}

async fn expire_one(engine: &Arc<Engine>, key: Key, now: u64) -> Result<(), StorageError> {
    let entry = engine.live.read().root.get(key.as_str()).cloned();
    let Some(entry) = entry.filter(|entry| entry.expires.is_some_and(|seconds| seconds <= now)) else {
        return Ok(());
    };
    // Whoever changed it meanwhile has decided otherwise.
    engine
        .commit(vec![Write {
            key,
            expect: Expect::At(entry.revision),
            op: Op::Delete,
        }])
        .await
        .map(drop)
}

/// Keeps changes for the retention time and not much longer. Ends with its scope.
pub(super) async fn compact_by_age(engine: Arc<Engine>) {
    if engine.options.retention.is_zero() {
        return;
    }
    loop {
        let noted = engine.live.read().revision;
        if noted <= engine.feed.read().compacted() {
            // Nothing to give up: sleep until something changes, without a timer.
            if reached(&engine, noted.next()).await.is_err() {
                return;
            }
            continue;
        }
        engine.runtime.sleep(engine.options.retention).await;
        if let Err(error) = compact(&engine, noted).await {
            tracing::debug!(%error, "compaction ends");
            return;
        }
    }
}

/// Waits until a revision is published.
pub(super) async fn reached(engine: &Arc<Engine>, revision: Revision) -> Result<(), StorageError> {
    let everything = Interest::prefix(Prefix::parse("/")?);
    loop {
        let current = engine.feed.read().current();
        if current >= revision {
            return Ok(());
        }
        let request = crate::WatchRequest {
            interests: vec![everything.clone()],
            after: current,
        };
        let cursor = super::cursor::LogCursor::open(engine, request);
        let mut cursor: Box<dyn crate::WatchCursor> = match cursor {
            Ok(cursor) => Box::new(cursor),
            Err(StorageError::Compacted { .. }) => continue,
            Err(error) => return Err(error),
        };
        match cursor.next_batch(1).await {
            Ok(_) | Err(StorageError::Compacted { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Gives up what is older than a revision: says so durably, then drops it step by step.
pub(super) async fn compact(engine: &Arc<Engine>, floor: Revision) -> Result<(), StorageError> {
    let (current, compacted) = {
        let feed = engine.feed.read();
        (feed.current(), feed.compacted())
    };
    if floor > current {
        return Err(StorageError::Future {
            asked: floor,
            current,
        });
    }
    if floor <= compacted {
        return Ok(());
    }
    engine.raise_floor(floor).await?;
    while engine.feed.write().trim(TRIM_STEP) {
        tokio::task::yield_now().await;
    }
    drop(engine.pins.lock().release(floor));
    let own = Arc::clone(engine);
    let pruned = engine.runtime.blocking(move || own.files.prune(floor)).await;
    if let Ok(Err(error)) = pruned {
        tracing::warn!(%error, "cannot remove old files of the log");
    }
    Ok(())
}

/// Writes a checkpoint of the state as it is now, in steps, off everyone's threads.
pub(super) fn checkpoint(engine: &Arc<Engine>) {
    let own = Arc::clone(engine);
    let mut writer = None;
    engine.begin_checkpoint();
    engine.runtime.worker("storage checkpoint", move || {
        match checkpoint_step(&own, &mut writer) {
            Ok(true) => {
                own.checkpointing.store(false, Ordering::Release);
                WorkerStep::Done
            }
            Ok(false) => WorkerStep::More,
            Err(error) => {
                // The log has everything; the next checkpoint is tried when as much again was written.
                tracing::error!(%error, "a checkpoint failed");
                if let Some(writer) = writer.take() {
                    writer.abandon();
                }
                own.checkpointing.store(false, Ordering::Release);
                WorkerStep::Done
            }
        }
    });
}

/// `true` when there is nothing left to do.
fn checkpoint_step(engine: &Engine, writer: &mut Option<CheckpointWriter>) -> Result<bool, StorageError> {
    let Some(begun) = writer else {
        let compacted = engine.feed.read().compacted();
        let live = engine.live.read().clone();
        let known = engine
            .files
            .checkpoints()
            .last()
            .map(|checkpoint| checkpoint.revision());
        if known == Some(live.revision) {
            return Ok(true);
        }
        let header = CheckpointHeader {
            store: engine.files.store,
            revision: live.revision.0,
            compacted: compacted.0,
            batch: live.batch,
        };
        let disk = Arc::clone(&engine.files.disk);
        *writer = Some(CheckpointWriter::begin(
            disk,
            &engine.files.dir,
            header,
            live.root,
        )?);
        return Ok(false);
    };
    let Some(checkpoint) = begun.step()? else {
        return Ok(false);
    };
    *writer = None;
    engine.files.add_checkpoint(Arc::new(checkpoint));
    let floor = engine.feed.read().compacted();
    engine.files.prune(floor)?;
    Ok(true)
}
