//! Handlers that are removed with their subscription, and the keys that changed since they were last taken.

use machinery_meta::ObjectKey;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use tokio::sync::Notify;

/// Keeps a handler alive; dropping it removes the handler.
pub struct Subscription(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Subscription {
    pub(super) fn new(end: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(end)))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscription")
    }
}

#[derive(Debug, Default)]
pub(super) struct Dirty {
    keys: Mutex<BTreeSet<ObjectKey>>,
    changed: Notify,
}

impl Dirty {
    pub(super) fn add(&self, key: &ObjectKey) {
        self.keys.lock().insert(key.clone());
        self.changed.notify_one();
    }
}

/// See [`Informer::dirty_keys`](super::Informer::dirty_keys).
#[derive(Debug)]
pub struct DirtyKeys {
    pub(super) dirty: Arc<Dirty>,
    pub(super) _subscription: Subscription,
}

impl DirtyKeys {
    /// Waits for a changed key and takes it; read the object from the informer, it may be gone.
    pub async fn next(&mut self) -> ObjectKey {
        loop {
            if let Some(key) = self.dirty.keys.lock().pop_first() {
                return key;
            }
            self.dirty.changed.notified().await;
        }
    }

    /// Waits until something changed and takes every changed key.
    pub async fn next_batch(&mut self) -> BTreeSet<ObjectKey> {
        loop {
            let keys = std::mem::take(&mut *self.dirty.keys.lock());
            if !keys.is_empty() {
                return keys;
            }
            self.dirty.changed.notified().await;
        }
    }
}
