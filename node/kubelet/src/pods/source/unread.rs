//! Pods of the API server that this node cannot decode: they run on as they were known, and end when that is requested.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery_meta::ObjectHeader;

use super::Pods;
use crate::pods::saved::SavedPod;
use crate::pods::uid;

impl Pods {
    /// Takes these uids for all of the API server's pods that cannot be decoded.
    pub(super) fn replace_unread(&self, uids: BTreeSet<String>) {
        *self.unread.lock() = uids;
    }

    /// Reports whether the node knows a pod: it has a worker, or the API server has it and it cannot be decoded.
    pub(crate) fn is_known(&self, uid: &str) -> bool {
        // In this order: one that can be decoded again has a worker before it is taken out of the others.
        self.unread.lock().contains(uid) || self.inboxes.lock().contains_key(uid)
    }

    /// Goes on with those of these pods that an earlier agent saved and no worker has. Later lists begin none: a pod that
    /// runs has a worker by then.
    pub(super) fn begin_unread(self: &Arc<Self>, unread: &[ObjectHeader]) {
        let mut saved = std::mem::take(&mut *self.saved.lock());
        let is_unread = |id: &str| unread.iter().any(|header| header.uid.0 == id);
        let inboxes = self.inboxes.lock();
        // Pods that can be decoded begin from the list itself, which is newer than the file.
        saved.retain(|known| is_unread(uid(&known.pod)) && !inboxes.contains_key(uid(&known.pod)));
        drop(inboxes);
        self.begin_saved(saved);
    }

    /// Begins the workers of pods that an earlier agent saved.
    pub(super) fn begin_saved(self: &Arc<Self>, saved: Vec<SavedPod>) {
        for known in &saved {
            if let Some(variables) = &known.services {
                let services = &self.context.control.services;
                services.remember(uid(&known.pod), variables.clone());
            }
        }
        self.hold_begun(saved.iter().map(|known| &known.pod));
        saved.into_iter().for_each(|known| self.set_of_the_api(known.pod));
    }

    /// Applies a pod that cannot be decoded: it ends if its deletion has been requested. One of which nothing is known
    /// ends with upstream's default grace period.
    pub(super) fn set_unread(self: &Arc<Self>, header: &ObjectHeader) {
        self.unread.lock().insert(header.uid.0.clone());
        let Some(ends) = &header.deletion_timestamp else {
            return;
        };
        let own = |pod: &Arc<Pod>| uid(pod) == header.uid.0;
        let mut known = self.list().into_iter().chain(self.context.mirrors.all());
        let known = known.find(own).map(|pod| Pod::clone(&pod));
        let mut pod = known.unwrap_or_else(|| named(header));
        let ends = ends.parse().unwrap_or_else(|_| self.context.runtime.now());
        pod.metadata.deletion_timestamp = Some(Time(ends));
        self.set_any(pod);
    }
}

/// A pod of which no more is known than which one it is.
fn named(header: &ObjectHeader) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.namespace = Some(header.key.namespace.to_string());
    pod.metadata.name = Some(header.key.name.to_string());
    pod.metadata.uid = Some(header.uid.0.clone());
    pod
}
