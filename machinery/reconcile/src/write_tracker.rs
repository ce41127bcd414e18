//! Last write of a controller to each object that it reconciles.
//!
//! A controller that writes the status of what it looks at reads it from a cache that lags behind its own write. The
//! next status, written on what the cache still shows, meets a conflict and is done all over. So a look that comes
//! before the cache shows the last write is left out: the event that brings the write brings the look.

use machinery_client::{Object, Written};
use machinery_meta::{ObjectKey, Revision};
use machinery_runtime::metrics::Counter;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// The revisions of own writes that were not seen yet, by object.
#[derive(Debug, Default)]
pub struct WriteTracker {
    unseen: Mutex<BTreeMap<ObjectKey, Revision>>,
    /// Looks left out.
    skips: Option<Counter>,
}

impl WriteTracker {
    /// A tracker that counts the reconciles that are skipped.
    pub fn counting(skips: Counter) -> Self {
        Self {
            skips: Some(skips),
            ..Self::default()
        }
    }

    /// Records the answer of the server to a write of this object.
    pub fn record_write(&self, key: &ObjectKey, written: &Written) {
        if let Some(revision) = written.revision() {
            self.unseen.lock().insert(key.clone(), revision);
        }
    }

    /// Reports whether this is the object before the last write. The event of the write is still to come and requeues the key.
    pub fn cache_is_stale<P>(&self, object: &Object<P>) -> bool {
        let mut unseen = self.unseen.lock();
        let behind = unseen
            .get(object.key())
            .is_some_and(|written| object.revision < *written);
        if !behind {
            unseen.remove(object.key());
        } else if let Some(skips) = &self.skips {
            skips.inc();
        }
        behind
    }

    /// The object is gone.
    pub fn forget(&self, key: &ObjectKey) {
        self.unseen.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_client::object::object_of;

    #[test]
    fn write_tracker_is_stale_until_write_or_later_is_seen() {
        let text = |revision: u64| {
            format!(r#"{{"metadata":{{"namespace":"n","name":"a","resourceVersion":"{revision}"}}}}"#)
        };
        let object = |revision| object_of::<()>(&text(revision)).unwrap();
        let (own, key) = (WriteTracker::default(), ObjectKey::new("n", "a"));
        assert!(!own.cache_is_stale(&object(3)));
        own.record_write(&key, &Written::of_answer(text(5)));
        assert!(own.cache_is_stale(&object(4)));
        assert!(!own.cache_is_stale(&object(6)));
        own.record_write(&key, &Written::of_answer(text(8)));
        own.forget(&key);
        assert!(!own.cache_is_stale(&object(7)));
    }
}
