//! Memory storage that refuses deletions or makes them for another client first, for as long as a test wants, and counts
//! reads of all entries.

use apiserver_storage::{
    Claim, Entry, Event, Key, LogStorage, Lookup, Op, Page, Prefix, RangeOptions, ReadAt, Record, Revision,
    Sample, Storage, StorageError, WatchCursor, WatchRequest, Write,
};
use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[derive(Debug)]
pub(crate) struct Undeletable {
    inner: LogStorage,
    pub(crate) refuses: AtomicBool,
    /// Makes each deletion first for another client, which gets the answer.
    #[allow(dead_code, reason = "not every test has another client")]
    pub(crate) is_overtaken: AtomicBool,
    pub(crate) reads: AtomicUsize,
    /// Deletions that were refused.
    pub(crate) refused: AtomicUsize,
}

impl Undeletable {
    pub(crate) fn new(inner: LogStorage) -> Self {
        Self {
            inner,
            refuses: AtomicBool::new(true),
            is_overtaken: AtomicBool::new(false),
            reads: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
        }
    }
}

#[async_trait]
impl Storage for Undeletable {
    async fn get(&self, key: &Key, at: ReadAt) -> Result<Lookup, StorageError> {
        self.inner.get(key, at).await
    }

    async fn range(&self, prefix: &Prefix, options: &RangeOptions) -> Result<Page, StorageError> {
        self.inner.range(prefix, options).await
    }

    fn sample(&self, prefix: &Prefix, most: usize) -> Option<Sample> {
        self.inner.sample(prefix, most)
    }

    fn entries_in_memory(&self, prefix: &Prefix) -> Option<(Vec<Arc<Entry>>, Revision)> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.entries_in_memory(prefix)
    }

    async fn count(&self, prefix: &Prefix) -> Result<u64, StorageError> {
        self.inner.count(prefix).await
    }

    async fn commit_for(&self, claim: Claim, group: Vec<Write>) -> Result<Vec<Arc<Event>>, StorageError> {
        let deletes = group.iter().any(|write| matches!(write.op, Op::Delete));
        if deletes && self.refuses.load(Ordering::Relaxed) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(StorageError::Unavailable("a test says so".to_owned()));
        }
        if deletes && self.is_overtaken.load(Ordering::Relaxed) {
            self.inner.commit_for(claim, group.clone()).await?;
        }
        self.inner.commit_for(claim, group).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<Box<dyn WatchCursor>, StorageError> {
        self.inner.watch(request).await
    }

    async fn current_revision(&self) -> Result<Revision, StorageError> {
        self.inner.current_revision().await
    }

    async fn compacted_revision(&self) -> Result<Revision, StorageError> {
        self.inner.compacted_revision().await
    }

    async fn reached(&self, revision: Revision) -> Result<(), StorageError> {
        self.inner.reached(revision).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StorageError> {
        self.inner.compact(revision).await
    }

    fn recache(&self, key: &Key, revision: Revision, record: Record) -> bool {
        self.inner.recache(key, revision, record)
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
