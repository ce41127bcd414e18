//! Options of the log.

use crate::encryption::Encryption;
use crate::{Quota, StorageError};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Settings of the segment log.
#[derive(Clone)]
pub struct LogOptions {
    /// The data directory. It is made when missing, and locked.
    pub dir: PathBuf,
    /// Bytes of recent changes in memory; older ones are read from the log.
    pub history_bytes: usize,
    /// Time that changes can be read and watched before they are compacted; never compacted by age when zero.
    pub retention: Duration,
    /// Bytes of the log that are kept for that at most, beside those that the next start needs; on a small file
    /// system an eighth of it. Beyond them, changes before the newest checkpoint are compacted early.
    pub kept_log_bytes: u64,
    /// A segment that has reached this size is followed by a new one.
    pub segment_bytes: u64,
    /// A checkpoint is written when the log behind the last one exceeds this and half the size of what is stored.
    pub checkpoint_bytes: u64,
    /// Room of the disk that is laid out ahead, so that deletions and the next start go on when the disk is full; on a
    /// small file system less is taken.
    pub reserve_bytes: u64,
    /// Interval at which a full disk is checked for room.
    pub space_retry: Duration,
    /// No entry lives longer than this after a start, whatever the wall clock was when it was written.
    pub longest_ttl: Duration,
    /// Interval between reads of all files; never when zero.
    pub scrub_interval: Duration,
    /// Bytes that these reads take in a second.
    pub scrub_bytes_per_second: u32,
    /// Bounds of what is stored; none by default.
    pub quota: Quota,
    /// Bytes that states of lists read page by page may hold beside the state of now; of more the oldest ends.
    pub pinned_bytes: u64,
    /// Encryption of records on the disk; none leaves them plain.
    pub encryption: Option<Arc<Encryption>>,
    /// Called once when a write or sync has failed, or a worker panicked: what is on the disk is unknown, so the process
    /// must end. Writes and watches are answered with errors after it; reads go on.
    pub on_fatal: Arc<dyn Fn(&StorageError) + Send + Sync>,
}

const HISTORY_BYTES: usize = 16 << 20;
const RETENTION: Duration = Duration::from_secs(5 * 60);
const KEPT_LOG_BYTES: u64 = 2 << 30;
const SEGMENT_BYTES: u64 = 64 << 20;
const CHECKPOINT_BYTES: u64 = 8 << 20;
const RESERVE_BYTES: u64 = 64 << 20;
const SPACE_RETRY: Duration = Duration::from_secs(5);
/// The time to live of events, the longest one in use.
const LONGEST_TTL: Duration = Duration::from_secs(60 * 60);
const SCRUB_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);
const SCRUB_BYTES_PER_SECOND: u32 = 4 << 20;

impl LogOptions {
    /// The defaults in a directory. A fatal failure aborts the process.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            history_bytes: HISTORY_BYTES,
            retention: RETENTION,
            kept_log_bytes: KEPT_LOG_BYTES,
            segment_bytes: SEGMENT_BYTES,
            checkpoint_bytes: CHECKPOINT_BYTES,
            reserve_bytes: RESERVE_BYTES,
            space_retry: SPACE_RETRY,
            longest_ttl: LONGEST_TTL,
            quota: Quota::default(),
            pinned_bytes: crate::live::PINNED_BYTES,
            encryption: None,
            scrub_interval: SCRUB_INTERVAL,
            scrub_bytes_per_second: SCRUB_BYTES_PER_SECOND,
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
