//! What a caller asks to change.

use crate::{Key, Record};
use machinery_meta::Revision;
use std::time::Duration;

/// One operation of a group.
#[derive(Debug, Clone)]
pub struct Write {
    pub key: Key,
    pub expect: Expect,
    pub op: Op,
}

/// What must be true of the key, counting every write queued before this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Anything.
    Any,
    /// Nothing is there.
    Absent,
    /// Something is there, whichever revision.
    Present,
    /// It was last changed at this revision.
    At(Revision),
}

/// What to do.
#[derive(Debug, Clone)]
pub enum Op {
    /// Store this record; with a time to live, delete it by itself after that long. Without one, an earlier time to
    /// live ends.
    Put { record: Record, ttl: Option<Duration> },
    /// Delete what is there. Something must be.
    Delete,
    /// Change nothing: the group fails unless the expectation holds.
    Check,
}

/// The most operations one group may have.
pub const MAX_GROUP_WRITES: usize = 1000;
/// The largest record, all parts together; upstream's limit for a request is 3 MiB.
pub const MAX_RECORD_BYTES: usize = 4 << 20;

impl Write {
    /// Stores what must not be there yet.
    pub fn create(key: Key, record: Record) -> Self {
        Self {
            key,
            expect: Expect::Absent,
            op: Op::Put { record, ttl: None },
        }
    }

    /// Replaces what was last changed at `revision`.
    pub fn update(key: Key, revision: Revision, record: Record) -> Self {
        Self {
            key,
            expect: Expect::At(revision),
            op: Op::Put { record, ttl: None },
        }
    }

    /// Deletes what was last changed at `revision`.
    pub fn delete(key: Key, revision: Revision) -> Self {
        Self {
            key,
            expect: Expect::At(revision),
            op: Op::Delete,
        }
    }
}
