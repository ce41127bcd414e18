//! Counters of storage, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds in seconds of the groups that syncs are counted in, those of etcd's
/// `etcd_disk_wal_fsync_duration_seconds`.
pub const SYNC_BOUNDS: [f64; 14] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192,
];

/// A reading of a backend's own figures.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Statistics {
    /// Bytes of all live records.
    pub stored_bytes: u64,
    /// Syncs of the log no longer than each of [`SYNC_BOUNDS`], cumulative.
    pub syncs_within: [u64; SYNC_BOUNDS.len()],
    /// All syncs of the log.
    pub syncs: u64,
    /// Total duration of the syncs.
    pub sync_time: Duration,
    /// The disk is full: only deletions are written.
    pub full: bool,
    /// Writes refused because of that.
    pub refused_writes: u64,
    /// Bytes of the disk reserve for deletions and restarts.
    pub reserve_bytes: u64,
    /// Bytes of all segments of the log.
    pub log_bytes: u64,
    /// The oldest revision that can be read.
    pub compacted_revision: u64,
    /// Writes refused because their namespace had written its share of the kept changes.
    pub refused_for_past: u64,
    /// Files of the log in which the scrub has found damage, each with what is wrong, and which are still needed.
    pub damaged_files: Vec<String>,
    /// The last attempt to write all values with the encryption configuration in use has failed: some may be stored as they
    /// were before.
    pub encryption_behind: bool,
    /// Bytes that the scrub has read.
    pub scrubbed_bytes: u64,
    /// Times that the scrub has read everything.
    pub scrubs: u64,
}

/// Syncs as they are counted: by the one flush, read by any task.
#[derive(Debug, Default)]
pub(crate) struct SyncTimes {
    within: [AtomicU64; SYNC_BOUNDS.len()],
    count: AtomicU64,
    nanoseconds: AtomicU64,
}

impl SyncTimes {
    pub(crate) fn add(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        for (bound, counter) in SYNC_BOUNDS.iter().zip(&self.within) {
            if seconds <= *bound {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, stored_bytes: u64) -> Statistics {
        Statistics {
            stored_bytes,
            syncs_within: std::array::from_fn(|at| self.within[at].load(Ordering::Relaxed)),
            syncs: self.count.load(Ordering::Relaxed),
            sync_time: Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)),
            ..Statistics::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_are_counted_in_every_group_they_fit() {
        let times = SyncTimes::default();
        times.add(Duration::from_millis(3));
        times.add(Duration::from_secs(60));
        let read = times.read(7);
        assert_eq!(read.syncs_within[..4], [0, 0, 1, 1]);
        assert_eq!((read.syncs, read.syncs_within[13], read.stored_bytes), (2, 1, 7));
        assert_eq!(read.sync_time, Duration::from_millis(60_003));
    }
}
