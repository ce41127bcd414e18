//! Errors of storage.

use crate::{Entry, Key};
use machinery_meta::Revision;
use std::io;
use std::sync::Arc;

/// Failures of storage operations. Cheap to clone, so that every caller concerned gets the failure.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StorageError {
    /// Not a path of the expected form.
    #[error("invalid key {0:?}")]
    InvalidKey(String),
    /// An expectation did not hold, and nothing of the group was written. The state found instead is durable.
    #[error("expectation on {key} did not hold")]
    Conflict {
        /// Index of the operation in the group.
        index: usize,
        key: Key,
        /// The stored entry.
        current: Option<Arc<Entry>>,
    },
    /// The revision is older than what is kept.
    #[error("revision {asked} has been compacted, the oldest kept is {compacted}")]
    Compacted { asked: Revision, compacted: Revision },
    /// The revision has not happened yet.
    #[error("revision {asked} is in the future, the current one is {current}")]
    Future { asked: Revision, current: Revision },
    /// More than a record, a group or a key may have.
    #[error("{what} is too large: {size}, at most {limit}")]
    TooLarge { what: String, size: usize, limit: usize },
    /// The group is empty, or names a key twice.
    #[error("invalid group: {0}")]
    InvalidGroup(&'static str),
    /// Storage is stopped, unreachable, or out of time. Of a write it is not known whether it happened.
    #[error("storage is unavailable: {0}")]
    Unavailable(String),
    /// No server answers at the addresses of etcd. Clients read these words and not the cause, which names addresses.
    #[error("etcd is not reachable")]
    Unreachable { cause: String },
    /// Storage was closed; a watch ends here, and goes on from its position elsewhere.
    #[error("storage is closed")]
    Closed,
    /// Stored bytes are not what was written.
    #[error("corrupt data in {file} at byte {offset}: {found}")]
    Corrupt {
        file: String,
        offset: u64,
        found: String,
    },
    /// Written by a newer version of this program.
    #[error("{what} has format version {found}, this program knows up to {known}")]
    NewerFormat { what: String, found: u32, known: u32 },
    /// Written by a version of this program that is no longer understood.
    #[error("{what} has format version {found}, this program knows {oldest} and later ones")]
    OlderFormat { what: String, found: u32, oldest: u32 },
    /// The disk is full: nothing of the group was written. Reads, watches and deletions go on. The words are etcd's.
    #[error("etcdserver: mvcc: database space exceeded (the disk of the data directory is full)")]
    NoSpace,
    /// The same of etcd: its quota is used up.
    #[error("etcdserver: mvcc: database space exceeded")]
    QuotaExceeded,
    /// All objects together take what they may: nothing of the group was written. Deletions go on. The words are etcd's.
    #[error(
        "etcdserver: mvcc: database space exceeded (the objects of all namespaces take what --storage-quota-bytes allows: \
         delete some to make room)"
    )]
    StoreQuotaExceeded,
    /// A namespace has used its share of the store: nothing of the group was written. Deletions go on. The words are
    /// those of upstream's ResourceQuota.
    #[error(
        "exceeded quota: storage, requested: bytes={requested}, used: bytes={used}, limited: bytes={limited}; \
         delete objects of namespace \"{namespace}\" to make room"
    )]
    NamespaceQuotaExceeded {
        namespace: String,
        requested: u64,
        used: u64,
        limited: u64,
    },
    /// A namespace has written its share of the changes that are kept: nothing of the group was written. Deletions go on.
    #[error(
        "the objects of {} changed by more bytes than its share of the kept history, please try again later",
        owner_of_past(.namespace)
    )]
    PastShareExceeded { namespace: String, retry_seconds: u32 },
    /// Another process has the data directory.
    #[error("data directory {0} is in use by another process")]
    Locked(String),
    /// A stored value is encrypted, and no key at hand opens it.
    #[error("unable to transform key \"{key}\": {cause}")]
    Sealed { key: Key, cause: String },
    /// A value cannot be encrypted now: nothing of the group was written. The words are upstream's.
    #[error("{cause}")]
    NotSealed { cause: String },
    /// A directory that must hold nothing does.
    #[error("{dir} is not empty, it has {found}: choose another directory, or move what is in it away")]
    NotEmpty { dir: String, found: String },
    /// A restore would go on from a revision behind the last one that there can be.
    #[error("the revision of the restored objects is larger than {0}: pass over fewer revisions")]
    RevisionTooLarge(u64),
    /// A file that is to be made is there.
    #[error("{0} exists: choose another name, or remove it")]
    Exists(String),
    /// Another backup is being made.
    #[error("another backup of this storage is under way")]
    Busy,
    /// The disk refused.
    #[error("{doing}")]
    Io {
        doing: String,
        #[source]
        source: Arc<io::Error>,
    },
    /// A stored value could not be turned into a record, or a record into a value.
    #[error("value of {key} is unreadable: {cause}")]
    Unreadable { key: String, cause: String },
    /// Values of a range that cannot be read: [`Self::Sealed`] and [`Self::Unreadable`], in the order of their keys, and
    /// whether there may be more than these.
    #[error("{} values of a range cannot be read, the first one: {}", .found.len(), first_of(.found))]
    UnreadableRange {
        found: Arc<[StorageError]>,
        is_cut: bool,
    },
}

/// Most unreadable values of a range that are named; upstream's number.
const MAX_UNREADABLE: usize = 100;

fn owner_of_past(namespace: &str) -> String {
    match namespace {
        "" => "this name".to_owned(),
        namespace => format!("namespace \"{namespace}\""),
    }
}

fn first_of(found: &[StorageError]) -> String {
    found.first().map(StorageError::to_string).unwrap_or_default()
}

/// Entries of a range.
///
/// Errors: [`StorageError::UnreadableRange`], where some of them cannot be read.
pub(crate) fn all_readable(
    entries: impl Iterator<Item = Result<Arc<Entry>, StorageError>>,
) -> Result<Vec<Arc<Entry>>, StorageError> {
    let (mut readable, mut found) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry {
            Ok(entry) => readable.push(entry),
            Err(error) if error.is_unreadable() => found.push(error),
            Err(error) => return Err(error),
        }
        if found.len() >= MAX_UNREADABLE {
            break;
        }
    }
    if found.is_empty() {
        return Ok(readable);
    }
    Err(StorageError::UnreadableRange {
        is_cut: found.len() >= MAX_UNREADABLE,
        found: found.into(),
    })
}

impl StorageError {
    /// Reports whether a value is there that cannot be read.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::Sealed { .. } | Self::Unreadable { .. })
    }

    /// Reports whether a write failed only for want of room.
    pub(crate) fn is_no_space(&self) -> bool {
        match self {
            Self::NoSpace => true,
            Self::Io { source, .. } => {
                matches!(
                    source.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                )
            }
            _ => false,
        }
    }

    /// The error and its causes in one line, for logs and for the owner of the data.
    pub fn chain(&self) -> String {
        match self {
            Self::Io { doing, source } => format!("{doing}: {source}"),
            Self::Unreachable { cause } => format!("{self}: {cause}"),
            other => other.to_string(),
        }
    }

    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        |source| Self::Io {
            doing,
            source: Arc::new(source),
        }
    }
}
