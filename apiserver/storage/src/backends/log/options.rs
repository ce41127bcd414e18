//! What an owner decides about the log.

use crate::StorageError;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Settings of the segment log.
#[derive(Clone)]
pub struct LogOptions {
    /// The data directory. It is made when missing, and locked.
    pub dir: PathBuf,
    /// How many bytes of recent changes are kept in memory; older ones are read from the log.
    pub history_bytes: usize,
    /// How long changes can be read and watched before they are compacted; nothing is compacted by itself when zero.
    pub retention: Duration,
    /// A segment that has reached this size is followed by a new one.
    pub segment_bytes: u64,
    /// A checkpoint is written when the log behind the last one exceeds this and half the size of what is stored.
    pub checkpoint_bytes: u64,
    /// Called once when a write or sync has failed: what is on the disk is unknown, so the process must end. Storage
    /// answers nothing but errors after it.
    pub on_fatal: Arc<dyn Fn(&StorageError) + Send + Sync>,
}

const HISTORY_BYTES: usize = 16 << 20;
const RETENTION: Duration = Duration::from_secs(5 * 60);
const SEGMENT_BYTES: u64 = 64 << 20;
const CHECKPOINT_BYTES: u64 = 8 << 20;

impl LogOptions {
    /// The defaults in a directory. A fatal failure aborts the process.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            history_bytes: HISTORY_BYTES,
            retention: RETENTION,
            segment_bytes: SEGMENT_BYTES,
            checkpoint_bytes: CHECKPOINT_BYTES,
            on_fatal: Arc::new(|_| std::process::abort()),
        }
    }
}

impl fmt::Debug for LogOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogOptions")
            .field("dir", &self.dir)
            .field("history_bytes", &self.history_bytes)
            .field("retention", &self.retention)
            .finish_non_exhaustive()
    }
}
