//! Reading everything again now and then, at a pace, so that damage is found while there is a good copy of it in memory.
//!
//! Damage is logged and counted, and the next change writes a new checkpoint: the next start needs what is damaged no
//! more, and it goes with the next compaction.

use super::checkpoint::Checkpoint;
use super::engine::Engine;
use super::files::Files;
use super::segment::Segment;
use super::verified::Verified;
use crate::StorageError;
use machinery_runtime::TaskEnded;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Results of the scrub so far.
#[derive(Debug, Default)]
pub(super) struct Scrubbed {
    damaged: Mutex<BTreeMap<PathBuf, String>>,
    bytes: AtomicU64,
    rounds: AtomicU64,
    /// A checkpoint is to be written because of damage.
    pub(super) heals: AtomicBool,
}

/// Bytes that are read at once.
const STEP_BYTES: u64 = 1 << 20;

impl Scrubbed {
    /// One line for each damaged file that is still there.
    pub(super) fn damaged(&self, files: &Files) -> Vec<String> {
        let mut damaged = self.damaged.lock();
        damaged.retain(|path, _| files.has(path));
        damaged.values().cloned().collect()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    fn note(&self, path: &Path, error: &StorageError) {
        tracing::error!(
            %error,
            "the scrub found damage in the log: take a backup now, and check the disk"
        );
        self.damaged.lock().insert(path.to_owned(), error.to_string());
        self.heals.store(true, Ordering::Release);
    }
}

/// Reads every file once in each interval. Ends with its scope.
pub(super) async fn scrub(engine: Arc<Engine>) {
    if engine.options.scrub_interval.is_zero() {
        return;
    }
    loop {
        engine.runtime.sleep(engine.options.scrub_interval).await;
        for checkpoint in engine.files.checkpoints() {
            let step = |at| {
                let checkpoint = Arc::clone(&checkpoint);
                move || Checkpoint::verify_some(&checkpoint, at, STEP_BYTES)
            };
            if file(&engine, &checkpoint.path, step).await.is_err() {
                return;
            }
        }
        for segment in engine.files.segments() {
            let step = |at| {
                let segment = Arc::clone(&segment);
                move || Segment::verify_some(&segment, at, STEP_BYTES)
            };
            if file(&engine, &segment.path, step).await.is_err() {
                return;
            }
        }
        engine.scrubbed.rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads one file step by step. The error says that storage stops.
async fn file<S>(engine: &Engine, path: &Path, step: impl Fn(u64) -> S) -> Result<(), TaskEnded>
where
    S: FnOnce() -> Result<Verified, StorageError> + Send + 'static,
{
    let mut at = Some(0);
    while let Some(offset) = at {
        let verified = match engine.runtime.blocking(step(offset)).await {
            Ok(verified) => verified,
            Err(ended) => {
                if let TaskEnded::Panicked(message) = &ended {
                    engine.panicked("the scrub", message);
                }
                return Err(ended);
            }
        };
        let verified = match verified {
            Ok(verified) => verified,
            Err(error @ (StorageError::Corrupt { .. } | StorageError::NewerFormat { .. })) => {
                // A file that was pruned while it was read may look damaged; it is no part of the log any more.
                if engine.files.has(path) {
                    engine.scrubbed.note(path, &error);
                }
                return Ok(());
            }
            Err(error) => {
                // A read that fails is the disk's to report, and may succeed next time.
                tracing::warn!(%error, "the scrub cannot read a file of the log");
                return Ok(());
            }
        };
        engine.scrubbed.bytes.fetch_add(verified.bytes, Ordering::Relaxed);
        at = verified.next;
        let pause = Duration::from_secs_f64(
            f64::from(u32::try_from(verified.bytes).unwrap_or(u32::MAX))
                / f64::from(engine.options.scrub_bytes_per_second.max(1)),
        );
        engine.runtime.sleep(pause).await;
    }
    Ok(())
}
