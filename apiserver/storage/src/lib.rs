//! The ordered log of every change.
//!
//! [`Storage`] is one order of changes, numbered by revision, one object per revision. A write goes in as a group of
//! compare-and-write operations, is made durable, becomes visible, and only then is acknowledged; a read sees
//! everything acknowledged before it began; a watch is a cursor on the same order. A stored value is a [`Record`]: the
//! object's bytes in three slices, and beside them the small parsed header that selectors and dispatch ask.
//!
//! Two backends keep this contract and run the same suite: `backends::log`, our own segment log with checkpoints, on a
//! disk or in memory, and `backends::etcd`.
//!
//! Not here: kinds, schemas, HTTP, permissions. Keys are upstream's (`/registry/pods/default/web`), but nothing in this
//! crate reads meaning into them beyond the slashes.

// Without unsafe code no access is a data race, which no test would have to show (a ThreadSanitizer's reports of an
// uninstrumented standard library are of its atomics).
#![forbid(unsafe_code)]

pub mod backends;
mod cursor;
pub mod encryption;
mod error;
mod feed;
mod key;
mod live;
mod quota;
mod record;
mod root;
mod statistics;
mod storage;
#[cfg(test)]
mod suite;
mod watch;
mod write;

pub use backends::etcd::{EtcdOptions, EtcdStorage};
pub use backends::log::{
    Backup, BackupFile, CheckReport, Finding, LogOptions, LogStorage, OfflineState, RecoveryReport,
    RestoreOptions, Restored, Salvaged, SnapshotContent, SnapshotOptions, check, restore, write_backup,
};
pub use error::StorageError;
pub use key::{Key, MAX_KEY_BYTES, Prefix};
pub use quota::{Claim, NamespaceUsage, OWN_SHARE, Quota, Usage, share_bytes};
pub use record::{CodecSlot, Entry, Record, RecordCodec};
pub use statistics::{SYNC_BOUNDS, Statistics};
pub use storage::{Lookup, Page, RangeOptions, ReadAt, Sample, SharedValues, Storage};
pub use watch::{Event, Target, WatchCursor, WatchFilter, WatchRequest};
pub use write::{Expect, MAX_GROUP_BYTES, MAX_GROUP_WRITES, MAX_RECORD_BYTES, Op, Write};

pub use machinery_meta::{ObjectHeader, ObjectKey, Revision, Uid};
