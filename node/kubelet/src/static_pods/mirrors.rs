//! The mirror pods of this node as the API server has them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use machinery_meta::ObjectHeader;
use parking_lot::Mutex;

use crate::pods::{name, namespace, uid};

/// Namespace and name of a pod.
pub(crate) type Key = (String, String);

/// The mirror pods of this node as the API server has them.
#[derive(Debug, Default)]
pub(crate) struct Mirrors(Mutex<BTreeMap<Key, Arc<Pod>>>);

/// The key of a pod.
pub(crate) fn key(pod: &Pod) -> Key {
    (namespace(pod).to_owned(), name(pod).to_owned())
}

impl Mirrors {
    /// The mirror pod of a static pod.
    pub(crate) fn of(&self, pod: &Pod) -> Option<Arc<Pod>> {
        self.0.lock().get(&key(pod)).cloned()
    }

    /// Takes these for all there are, beside those of these uids, which are as they were.
    pub(crate) fn replace(&self, pods: impl IntoIterator<Item = Pod>, unread: &BTreeSet<String>) {
        let mut known = self.0.lock();
        known.retain(|_, own| unread.contains(uid(own)));
        known.extend(pods.into_iter().map(|pod| (key(&pod), Arc::new(pod))));
    }

    /// Applies one that is new or has changed.
    pub(crate) fn set(&self, pod: Pod) {
        self.0.lock().insert(key(&pod), Arc::new(pod));
    }

    /// Forgets one that is gone, unless another of its name is there by now.
    pub(crate) fn remove(&self, gone: &ObjectHeader) {
        let key = (gone.key.namespace.to_string(), gone.key.name.to_string());
        let mut known = self.0.lock();
        if known.get(&key).is_some_and(|own| uid(own) == gone.uid.0) {
            known.remove(&key);
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Pod>> {
        self.0.lock().values().cloned().collect()
    }
}
