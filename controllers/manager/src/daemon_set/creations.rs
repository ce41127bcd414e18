//! Nodes of pods that were requested and not seen yet: a creation whose answer was lost is sent again for its node.

use machinery_meta::ObjectKey;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

type ByPod = BTreeMap<ObjectKey, String>;

#[derive(Debug, Default)]
pub(super) struct Creations(Mutex<BTreeMap<ObjectKey, ByPod>>);

impl Creations {
    /// Pods of the set are about to be requested; what was requested before has been seen.
    pub(super) fn begin(&self, set: &ObjectKey, pods: &[(ObjectKey, String)]) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(set.clone(), pods.iter().cloned().collect());
    }

    /// The node of a pod.
    pub(super) fn node_of(&self, set: &ObjectKey, pod: &ObjectKey) -> Option<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(set)?.get(pod).cloned()
    }

    pub(super) fn forget(&self, set: &ObjectKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(set);
    }
}
