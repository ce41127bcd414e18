//! Changes that a caller requests.

use crate::{Key, Record, StorageError};
use machinery_meta::Revision;
use std::collections::HashSet;
use std::time::Duration;

/// One operation of a group.
#[derive(Debug, Clone)]
pub struct Write {
    pub key: Key,
    pub expect: Expect,
    pub op: Op,
}

/// The expected state of the key, counting every write queued before this one.
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

/// The change of a key.
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

/// The effect of a group on a full disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpaceEffect {
    /// It takes room.
    Nothing,
    /// It takes a little, so that something can be deleted: its objects are marked as deleted.
    Soon,
    /// It deletes something; what it puts beside that without a namespace goes along (an allocator's bitmap).
    Now,
}

impl SpaceEffect {
    pub(crate) fn of(group: &[Write]) -> Self {
        let puts = || {
            group.iter().filter_map(|write| match &write.op {
                Op::Put { record, .. } => Some(record),
                Op::Delete | Op::Check => None,
            })
        };
        let deletes = group.iter().any(|write| matches!(write.op, Op::Delete));
        let goes_along = |record: &Record| deletes && record.header.key.namespace.is_empty();
        if puts().all(goes_along) {
            Self::Now
        } else if puts().all(|record| record.header.deletion_timestamp.is_some()) {
            Self::Soon
        } else {
            Self::Nothing
        }
    }
}

/// The most operations one group may have.
pub const MAX_GROUP_WRITES: usize = 1000;
/// The largest record, all parts together; upstream's limit for a request is 3 MiB.
pub const MAX_RECORD_BYTES: usize = 4 << 20;
/// The largest group, all records together.
pub const MAX_GROUP_BYTES: usize = 8 << 20;

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

/// Checks the form of a group; its size in bytes.
pub(crate) fn check_group(group: &[Write]) -> Result<usize, StorageError> {
    if group.is_empty() {
        return Err(StorageError::InvalidGroup("it is empty"));
    }
    if group.len() > MAX_GROUP_WRITES {
        return Err(too_large("a group", group.len(), MAX_GROUP_WRITES));
    }
    let mut keys = HashSet::with_capacity(group.len());
    let mut bytes = 0;
    for write in group {
        if group.len() > 1 && !keys.insert(&write.key) {
            return Err(StorageError::InvalidGroup("it names a key twice"));
        }
        if let Op::Put { record, .. } = &write.op {
            let size = stored_size(record);
            if size > MAX_RECORD_BYTES {
                return Err(too_large(write.key.as_str(), size, MAX_RECORD_BYTES));
            }
            bytes += size;
        }
    }
    if bytes > MAX_GROUP_BYTES {
        return Err(too_large("a group", bytes, MAX_GROUP_BYTES));
    }
    Ok(bytes)
}

fn too_large(what: &str, size: usize, limit: usize) -> StorageError {
    StorageError::TooLarge {
        what: what.to_owned(),
        size,
        limit,
    }
}

/// The parts, and about what the header takes beside them.
pub(crate) fn stored_size(record: &Record) -> usize {
    let header = &record.header;
    let labels = header.labels.iter().map(|(key, value)| key.len() + value.len());
    let fields = header.fields.iter().map(|(path, value)| path.len() + value.len());
    let text: usize = labels.chain(fields).sum();
    let owners: usize = header.owners.iter().map(|owner| owner.text_bytes() + 128).sum();
    record.len()
        + text
        + owners
        + header
            .finalizers
            .iter()
            .map(|finalizer| finalizer.len())
            .sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_meta::{ObjectHeader, ObjectKey, OwnerRef};
    use std::sync::Arc;

    /// A put of an object that is being deleted, or not.
    fn put(namespace: &str, is_deleting: bool) -> Write {
        let header = ObjectHeader {
            key: ObjectKey::new(namespace, "x"),
            deletion_timestamp: is_deleting.then(|| "2026-11-23T00:00:00Z".into()),
            ..ObjectHeader::default()
        };
        let record = Record {
            parts: Default::default(),
            fingerprint: 0,
            header: Arc::new(header),
        };
        Write::create(Key::parse(&format!("/registry/x/n{namespace}")).unwrap(), record)
    }

    #[test]
    fn record_counts_the_whole_of_its_owners() {
        let text = || "m".repeat(MAX_RECORD_BYTES / 3);
        let mut owner = OwnerRef {
            api_version: text().into(),
            kind: text().into(),
            ..OwnerRef::default()
        };
        let group = |owner: &OwnerRef| {
            let header = ObjectHeader {
                owners: vec![owner.clone()],
                ..ObjectHeader::default()
            };
            let record = Record {
                parts: Default::default(),
                fingerprint: 0,
                header: Arc::new(header),
            };
            [Write::create(Key::parse("/registry/x/owned").unwrap(), record)]
        };
        check_group(&group(&owner)).unwrap();
        owner.uid.0 = text();
        let refused = check_group(&group(&owner)).unwrap_err();
        assert!(matches!(refused, StorageError::TooLarge { .. }), "{refused}");
    }

    #[test]
    fn full_disk_has_room_for_deletions_and_what_goes_along() {
        let delete = || Write::delete(Key::parse("/registry/x/gone").unwrap(), Revision(1));
        for (group, expected) in [
            (vec![delete()], SpaceEffect::Now),
            (vec![delete(), put("", false)], SpaceEffect::Now),
            (vec![delete(), put("a", false)], SpaceEffect::Nothing),
            (
                vec![delete(), put("", false), put("a", false)],
                SpaceEffect::Nothing,
            ),
            (vec![put("", false)], SpaceEffect::Nothing),
            (vec![put("a", true)], SpaceEffect::Soon),
        ] {
            assert_eq!(SpaceEffect::of(&group), expected, "{group:?}");
        }
    }
}
