//! Room on a full disk, from what the log itself has on it: history, and records of what was changed or deleted since.
//!
//! As long as the disk is full, history behind the newest checkpoint goes before its time. Where a checkpoint of what is
//! left frees much more than it takes, it is written in the room of the reserve, and everything before it goes. Nothing of
//! that is free in between: another may take every byte in the moment in which it is.

use super::checkpointing::{self, Purpose, needed_bytes};
use super::engine::Engine;
use super::upkeep::compact;
use crate::StorageError;
use machinery_runtime::TaskEnded;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Lays out the reserve, and looks for room as long as the disk is full or the reserve is not whole. Ends with its scope.
pub(super) async fn maintain_reserve(engine: Arc<Engine>) {
    let room = &engine.files.room;
    let mut complained = false;
    loop {
        if room.is_full() && make_room(&engine).await.is_err() {
            return;
        }
        if refill(&engine).await.is_err() {
            return;
        }
        let whole = room.is_whole();
        if !whole && !complained {
            tracing::warn!("the disk of the data directory has no room for all of the reserve");
        }
        complained = !whole;
        let retry = engine.runtime.sleep(engine.options.space_retry);
        if room.is_full() {
            retry.await;
        } else if whole {
            room.filled.notified().await;
        } else {
            tokio::select! { biased;
                () = room.filled.notified() => {}
                () = retry => {}
            }
        }
    }
}

/// Runs work on a thread for blocking work. Errors: storage ends.
async fn on_disk<T: Send + 'static>(
    engine: &Arc<Engine>,
    work: impl FnOnce(&Engine) -> Result<T, StorageError> + Send + 'static,
) -> Result<Option<T>, TaskEnded> {
    let own = Arc::clone(engine);
    match engine.runtime.blocking(move || work(&own)).await {
        Ok(Ok(done)) => Ok(Some(done)),
        Ok(Err(error)) => {
            tracing::warn!(error = error.chain(), "the reserve for a full disk is incomplete");
            Ok(None)
        }
        Err(ended) => {
            if let TaskEnded::Panicked(message) = &ended {
                engine.panicked("the reserve", message);
            }
            Err(ended)
        }
    }
}

async fn refill(engine: &Arc<Engine>) -> Result<(), TaskEnded> {
    on_disk(engine, |engine| engine.files.refill()).await.map(drop)
}

async fn make_room(engine: &Arc<Engine>) -> Result<(), TaskEnded> {
    // History goes first: it costs no data. Only where that is not enough a checkpoint is written in the
    // reserve.
    if let Some(newest) = engine.files.history_ends()
        && let Err(error) = compact(engine, newest).await
    {
        tracing::debug!(error = error.chain(), "history stays on a full disk");
    }
    refill(engine).await?;
    // One checkpoint at a time: two would take twice the room of a full disk.
    if !engine.files.room.is_full() || engine.checkpointing.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    let lent = on_disk(engine, lend).await;
    if !matches!(lent, Ok(Some(true))) {
        checkpointing::release(engine);
        return lent.map(drop);
    }
    tracing::info!("the disk is full: history is discarded to reclaim space");
    // An error is in the log; the next look is in a few seconds.
    drop(checkpointing::write(engine, Purpose::Room).await);
    Ok(())
}

/// Lends as much of the reserve as a checkpoint takes, where that frees more than it takes.
fn lend(engine: &Engine) -> Result<bool, StorageError> {
    let (files, needed) = (&engine.files, needed_bytes(&engine.live.read()));
    if files.superseded_bytes()? < needed + files.room.least_gain() {
        return Ok(false);
    }
    files.room.lend(needed)
}
