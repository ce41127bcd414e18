//! The contract.

use crate::encryption::{Encryption, UndecryptedValues};
use crate::{
    Backup, Claim, CodecSlot, Entry, Event, Key, Prefix, Record, Statistics, StorageError, Usage,
    WatchCursor, WatchRequest, Write,
};
use async_trait::async_trait;
use machinery_meta::Revision;
use std::fmt::Debug;
use std::sync::Arc;

/// One order of changes. Every backend keeps these invariants, and the suite checks each of them:
///
/// - Revisions grow by one with each changed object. A group is a run of consecutive revisions, all there or none, after
///   a crash too; no read or watch sees part of one. (On etcd the changes of a group share one revision.)
/// - Nothing is visible, to a read, a watch, a conflict or a position, before it is durable.
/// - Acknowledged writes are seen by every read that begins later.
/// - A write, once taken up, happens or fails as a whole, also when the caller stops waiting for it.
/// - Expectations are compared with the state after all writes that were taken up before.
/// - An entry whose time has come is deleted by an ordinary change.
#[async_trait]
pub trait Storage: Send + Sync + Debug {
    /// Reads a key.
    async fn get(&self, key: &Key, at: ReadAt) -> Result<Lookup, StorageError>;

    /// Entries below a prefix, in the order of their keys.
    ///
    /// Errors: [`StorageError::UnreadableRange`], where some of them cannot be read.
    async fn range(&self, prefix: &Prefix, options: &RangeOptions) -> Result<Page, StorageError>;

    /// Revision of the value at a key, whether the value can be read or not.
    async fn stored_revision(&self, key: &Key) -> Result<Option<Revision>, StorageError> {
        let found = self.get(key, ReadAt::Latest).await?;
        Ok(found.entry.map(|entry| entry.revision))
    }

    /// Number and size of the entries below a prefix, from memory: as of any recent revision, without a request to etcd.
    /// Sizes are those of the first `most` entries. `None` while no state is in memory.
    fn sample(&self, prefix: &Prefix, most: usize) -> Option<Sample>;

    /// All entries below a prefix as they are in memory, and the revision of that state; in the place of an unreadable record
    /// stands a sealed one ([`Record::is_sealed`]). `None` while no state is in memory.
    fn entries_in_memory(&self, prefix: &Prefix) -> Option<(Vec<Arc<Entry>>, Revision)>;

    /// Number of keys below a prefix at the latest revision.
    async fn count(&self, prefix: &Prefix) -> Result<u64, StorageError>;

    /// Compares and writes, all or nothing. One event for each put and delete, in the group's order.
    ///
    /// Errors: [`StorageError::Conflict`] for the first expectation that does not hold,
    /// [`StorageError::NamespaceQuotaExceeded`] and [`StorageError::StoreQuotaExceeded`] where it grows beyond what there is
    /// for the claim; then nothing was written.
    async fn commit_for(&self, claim: Claim, group: Vec<Write>) -> Result<Vec<Arc<Event>>, StorageError>;

    /// The same for the server itself.
    ///
    /// Errors: as [`Storage::commit_for`].
    async fn commit(&self, group: Vec<Write>) -> Result<Vec<Arc<Event>>, StorageError> {
        self.commit_for(Claim::System, group).await
    }

    /// Reports whether the quota has room for a group now.
    ///
    /// Errors: those of the quota, as [`Storage::commit_for`].
    fn has_room_for(&self, _claim: Claim, _group: &[Write]) -> Result<(), StorageError> {
        Ok(())
    }

    /// Stored bytes as they are counted for the quota.
    fn usage(&self) -> Usage {
        Usage::default()
    }

    /// Reports whether the last write that the quota of the store refused would be refused again, as
    /// [`Usage::is_full`]; cheap.
    fn is_over_quota(&self) -> bool {
        false
    }

    /// A cursor on the changes after a revision.
    ///
    /// Errors: [`StorageError::Compacted`], [`StorageError::Future`].
    async fn watch(&self, request: WatchRequest) -> Result<Box<dyn WatchCursor>, StorageError>;

    /// The last change that reads see.
    async fn current_revision(&self) -> Result<Revision, StorageError>;

    /// The oldest revision that can be read; changes after it can be watched.
    async fn compacted_revision(&self) -> Result<Revision, StorageError>;

    /// Resolves when reads see at least this revision. The caller bounds the wait.
    async fn reached(&self, revision: Revision) -> Result<(), StorageError>;

    /// Compacts everything older than a revision, soon. An older or equal floor changes nothing.
    async fn compact(&self, revision: Revision) -> Result<(), StorageError>;

    /// Replaces the record that reads are given for an entry, as long as the entry is still at `revision`: no new
    /// revision, no event, nothing written. This is how a record of another schema is converted once. `false` when the
    /// entry has moved on.
    fn recache(&self, key: &Key, revision: Revision, record: Record) -> bool;

    /// The place of the codec for stored values, to be filled before the first read; `None` where the backend stores records
    /// as they are.
    fn codec(&self) -> Option<&CodecSlot> {
        None
    }

    /// Reports whether an entry is stored in another form than a write would give it now, as after a change of keys,
    /// so that writing it again has an effect.
    fn is_stale(&self, _entry: &Entry) -> bool {
        false
    }

    /// The encryption of what is stored, where there is one.
    fn encryption(&self) -> Option<Arc<Encryption>> {
        None
    }

    /// Stored values that no key at hand decrypts.
    fn unopened(&self) -> UndecryptedValues {
        UndecryptedValues::default()
    }

    /// Stored values that are decrypted now, and that another configuration would not decrypt.
    ///
    /// Errors: which values there are is not known (yet).
    fn lost_by(&self, _other: &Encryption) -> Result<UndecryptedValues, StorageError> {
        Ok(UndecryptedValues::default())
    }

    /// Follows a change of the encryption: values that were missed are looked at again, and a backend that keeps files
    /// writes everything into new ones. Returns before that is done.
    async fn encryption_replaced(&self) {}

    /// Follows a change of the keys of plugins ([`Encryption::changes`]) in the same way, as far as something has changed by it.
    async fn keys_changed(&self) {}

    /// A backup of the state as it is now; `None` where the backend makes its own, as etcd does.
    ///
    /// Errors: [`StorageError::Busy`] while another one is made.
    fn backup(&self) -> Result<Option<Backup>, StorageError> {
        Ok(None)
    }

    /// The backend's own figures; `None` where another process keeps them, as etcd does.
    fn statistics(&self) -> Option<Statistics> {
        None
    }

    /// Reports whether values could not be written with the encryption configuration in use, so that some are stored as they
    /// were before.
    fn is_encryption_behind(&self) -> bool {
        self.statistics().is_some_and(|own| own.encryption_behind)
    }

    /// Values that several servers over one store share beside the objects; `None` for a store of one server's own.
    fn shared(&self) -> Option<&dyn SharedValues> {
        None
    }

    /// Finishes what was accepted, ends watches with [`StorageError::Closed`], refuses everything after, and releases every file, task and connection.
    async fn close(&self);
}

/// Values outside of the objects' keys, one for all servers of a store. No request reaches them.
#[async_trait]
pub trait SharedValues: Send + Sync {
    /// The value of a name: that of the first server that offered one, which is this one when there is none yet. It is stored
    /// encrypted where Secrets are, with the key that writes them now.
    ///
    /// Errors: [`StorageError::Sealed`] where no key at hand opens it.
    async fn agree(&self, name: &str, offered: Vec<u8>) -> Result<Vec<u8>, StorageError>;

    /// Encrypts the value of a name with the key that writes Secrets now; whether it was not yet.
    async fn reseal(&self, name: &str) -> Result<bool, StorageError>;

    /// Reads which keys the values are encrypted with, for [`Storage::lost_by`]: other servers re-encrypt them, too.
    async fn note_keys(&self) -> Result<(), StorageError>;
}

/// The time of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadAt {
    /// Everything acknowledged so far.
    #[default]
    Latest,
    /// Any state at hand that is not older than this; [`StorageError::Future`] if it has not happened yet.
    NotBefore(Revision),
    /// Exactly then.
    Exact(Revision),
}

/// The answer to [`Storage::get`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    pub entry: Option<Arc<Entry>>,
    /// The revision the answer is true at.
    pub revision: Revision,
}

/// The answer to [`Storage::sample`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    pub count: u64,
    /// 0 where there are no entries.
    pub average_bytes: u64,
}

/// The part of a range to read.
#[derive(Debug, Clone, Default)]
pub struct RangeOptions {
    pub at: ReadAt,
    /// Only keys that sort after this one.
    pub start_after: Option<Key>,
    /// At most so many entries; zero means all.
    pub limit: usize,
}

impl RangeOptions {
    pub(crate) fn most(&self) -> usize {
        if self.limit == 0 { usize::MAX } else { self.limit }
    }
}

/// The answer to [`Storage::range`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub entries: Vec<Arc<Entry>>,
    /// The revision the page is true at; requesting the next page with [`ReadAt::Exact`] of it gives one consistent list.
    pub revision: Revision,
    /// Number of keys of the prefix after the last entry.
    pub remaining: u64,
}
