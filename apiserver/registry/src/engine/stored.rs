//! Storage without its writes: all that a holder of the registry alone gets of the storage.

use apiserver_storage::encryption::UndecryptedValues;
use apiserver_storage::{
    Backup, Key, Lookup, Page, Prefix, RangeOptions, ReadAt, Sample, Statistics, Storage, StorageError,
    Usage, WatchCursor, WatchRequest,
};
use machinery_meta::Revision;
use std::fmt;
use std::sync::Arc;

/// Reads of the storage.
#[derive(Clone, Copy)]
pub struct Stored<'a>(&'a Arc<dyn Storage>);

impl fmt::Debug for Stored<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored").finish_non_exhaustive()
    }
}

/// Errors are those of the methods of [`Storage`] by the same name.
impl<'a> Stored<'a> {
    pub(crate) fn new(storage: &'a Arc<dyn Storage>) -> Self {
        Self(storage)
    }

    pub async fn get(self, key: &Key, at: ReadAt) -> Result<Lookup, StorageError> {
        self.0.get(key, at).await
    }

    pub async fn range(self, prefix: &Prefix, options: &RangeOptions) -> Result<Page, StorageError> {
        self.0.range(prefix, options).await
    }

    /// Number and size of the entries below a prefix, from memory.
    pub fn sample(self, prefix: &Prefix, most: usize) -> Option<Sample> {
        self.0.sample(prefix, most)
    }

    pub async fn count(self, prefix: &Prefix) -> Result<u64, StorageError> {
        self.0.count(prefix).await
    }

    pub async fn watch(self, request: WatchRequest) -> Result<Box<dyn WatchCursor>, StorageError> {
        self.0.watch(request).await
    }

    pub async fn current_revision(self) -> Result<Revision, StorageError> {
        self.0.current_revision().await
    }

    pub async fn compacted_revision(self) -> Result<Revision, StorageError> {
        self.0.compacted_revision().await
    }

    /// A backup of the state as it is now; `None` where the backend makes its own.
    pub fn backup(self) -> Result<Option<Backup>, StorageError> {
        self.0.backup()
    }

    /// Stored values that no key at hand decrypts.
    pub fn unopened(self) -> UndecryptedValues {
        self.0.unopened()
    }

    /// Reports whether values could not be written with the encryption configuration in use.
    pub fn is_encryption_behind(self) -> bool {
        self.0.is_encryption_behind()
    }

    /// The health of the plugins that encrypt keys; `None` where there are none.
    pub fn plugins_health(self) -> Option<Result<(), String>> {
        self.0.encryption()?.plugins_health()
    }

    /// The backend's own figures; `None` where another process keeps them.
    pub fn statistics(self) -> Option<Statistics> {
        self.0.statistics()
    }

    /// Stored bytes as they are counted for the quota.
    pub fn usage(self) -> Usage {
        self.0.usage()
    }

    /// Reports whether the last write that the store's quota refused would be refused again.
    pub fn is_over_quota(self) -> bool {
        self.0.is_over_quota()
    }

    /// Reports whether other servers may use the same storage.
    pub fn is_shared(self) -> bool {
        self.0.shared().is_some()
    }
}
