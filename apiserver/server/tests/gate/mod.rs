//! Memory storage whose commits of one key can be held back, so that a test can do something meanwhile.

#![allow(dead_code, reason = "each test file uses a part")]

use apiserver_storage::{
    Claim, Entry, Event, Key, LogStorage, Lookup, Page, Prefix, RangeOptions, ReadAt, Record, Revision,
    Sample, Storage, StorageError, WatchCursor, WatchRequest, Write,
};
use async_trait::async_trait;
use std::sync::{Arc, Mutex};
use tokio::sync::{Semaphore, oneshot};

#[derive(Debug)]
pub(crate) struct GatedStorage {
    inner: LogStorage,
    gate: Semaphore,
    held: Mutex<Option<(String, oneshot::Sender<()>)>>,
    /// Reads of this key wait at the gate as well, all of them.
    held_reads: Mutex<Option<String>>,
}

impl GatedStorage {
    pub(crate) fn new(inner: LogStorage) -> Self {
        Self {
            inner,
            gate: Semaphore::new(0),
            held: Mutex::new(None),
            held_reads: Mutex::new(None),
        }
    }

    /// Holds commits of this key; the returned receiver resolves when one waits.
    pub(crate) fn close_gate(&self, key: &str) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        *self.held.lock().unwrap() = Some((key.to_owned(), sender));
        receiver
    }

    /// Holds reads of this key.
    pub(crate) fn hold_reads(&self, key: &str) {
        *self.held_reads.lock().unwrap() = Some(key.to_owned());
    }

    pub(crate) fn open_gate(&self) {
        self.gate.add_permits(1);
    }

    fn take(&self, group: &[Write]) -> Option<oneshot::Sender<()>> {
        let mut held = self.held.lock().unwrap();
        let (key, _) = held.as_ref()?;
        group
            .iter()
            .any(|write| write.key.as_str() == key)
            .then(|| held.take())?
            .map(|(_, sender)| sender)
    }
}

#[async_trait]
impl Storage for GatedStorage {
    async fn get(&self, key: &Key, at: ReadAt) -> Result<Lookup, StorageError> {
        let is_held = self.held_reads.lock().unwrap().as_deref() == Some(key.as_str());
        if is_held {
            self.gate.acquire().await.unwrap().forget();
        }
        self.inner.get(key, at).await
    }

    async fn range(&self, prefix: &Prefix, options: &RangeOptions) -> Result<Page, StorageError> {
        self.inner.range(prefix, options).await
    }

    fn sample(&self, prefix: &Prefix, most: usize) -> Option<Sample> {
        self.inner.sample(prefix, most)
    }

    fn entries_in_memory(&self, prefix: &Prefix) -> Option<(Vec<Arc<Entry>>, Revision)> {
        self.inner.entries_in_memory(prefix)
    }

    async fn count(&self, prefix: &Prefix) -> Result<u64, StorageError> {
        self.inner.count(prefix).await
    }

    async fn commit_for(&self, claim: Claim, group: Vec<Write>) -> Result<Vec<Arc<Event>>, StorageError> {
        if let Some(began) = self.take(&group) {
            began.send(()).unwrap();
            self.gate.acquire().await.unwrap().forget();
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
