//! Index of what pods and volumes need on their nodes, so that a node's read of a secret costs a look into a table and not a walk over
//! its pods.
//!
//! The server feeds it every change of pods and PersistentVolumes. A change of a pod is noted by its header alone; what the
//! pod needs is read from it when its node requests something in its namespace next, once however often it changed since.
//! So a pod of an idle node costs nothing, and a node's requests cost one decode per change of its pods. A pod
//! that goes, or goes elsewhere, takes its needs with it at once.

use machinery_meta::{ObjectHeader, ObjectKey, Revision};
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

/// Kinds of objects that pods name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Needed {
    Secret,
    ConfigMap,
    VolumeClaim,
    ResourceClaim,
    ServiceAccount,
}

/// An object of the pod's namespace.
pub(super) type Need = (Needed, Box<str>);

/// See the module.
#[derive(Default)]
pub struct NodeIndex {
    pods: RwLock<Pods>,
    volumes: RwLock<Volumes>,
}

impl fmt::Debug for NodeIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeIndex").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Pods {
    nodes: HashMap<Arc<str>, NodePods>,
    node_of: HashMap<ObjectKey, Arc<str>>,
}

/// The pods that are bound to one node.
#[derive(Default)]
struct NodePods {
    pods: BTreeMap<ObjectKey, PodNeeds>,
    /// Pods that changed since they were read.
    unread: BTreeSet<ObjectKey>,
    /// Numbers of pods of a namespace that need an object.
    needs: HashMap<Box<str>, HashMap<Need, usize>>,
}

#[derive(Default)]
struct PodNeeds {
    /// The newest version that is known of.
    newest: Revision,
    /// The version that `needs` were read from.
    read: Revision,
    needs: Box<[Need]>,
}

/// Secrets that volumes need on nodes.
#[derive(Default)]
struct Volumes {
    read: HashMap<Box<str>, VolumeNeeds>,
    by_secret: HashMap<ObjectKey, BTreeSet<Box<str>>>,
}

/// A volume as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct VolumeNeeds {
    pub(super) revision: Revision,
    /// The claim that the volume is bound to.
    pub(super) claim: ObjectKey,
    pub(super) secrets: BTreeSet<ObjectKey>,
}

impl NodeIndex {
    /// All pods as of now; what was read of those that have not changed stays.
    pub fn replace_pods<'a>(&self, pods: impl Iterator<Item = (&'a ObjectHeader, Revision)>) {
        let mut own = self.pods.write();
        let mut gone: BTreeSet<ObjectKey> = own.node_of.keys().cloned().collect();
        for (pod, revision) in pods {
            gone.remove(&pod.key);
            own.put(pod, revision);
        }
        gone.iter().for_each(|key| own.remove(key));
    }

    /// A pod as it is since a revision.
    pub fn put_pod(&self, pod: &ObjectHeader, revision: Revision) {
        self.pods.write().put(pod, revision);
    }

    /// A pod that is no longer there.
    pub fn remove_pod(&self, key: &ObjectKey) {
        self.pods.write().remove(key);
    }

    /// The pods of a node and a namespace that changed since they were read, with the version that is known of.
    pub(super) fn unread(&self, node: &str, namespace: &str) -> Vec<(ObjectKey, Revision)> {
        let pods = self.pods.read();
        let Some(own) = pods.nodes.get(node) else {
            return Vec::new();
        };
        let from = ObjectKey::new(namespace, "");
        let unread = own.unread.range(from..);
        unread
            .take_while(|key| key.namespace == namespace)
            .map(|key| {
                (
                    key.clone(),
                    own.pods.get(key).map_or(Revision::ZERO, |pod| pod.newest),
                )
            })
            .collect()
    }

    /// Records what a pod of a node needs, by one version of it. Without effect when the pod went.
    pub(super) fn read(&self, node: &str, key: &ObjectKey, revision: Revision, needs: BTreeSet<Need>) {
        if let Some(own) = self.pods.write().nodes.get_mut(node) {
            own.read(key, revision, needs);
        }
    }

    /// Reports whether what a pod of a node needs was read from this version of it.
    pub(super) fn has_read(&self, node: &str, key: &ObjectKey, revision: Revision) -> bool {
        let pods = self.pods.read();
        let pod = pods.nodes.get(node).and_then(|own| own.pods.get(key));
        pod.is_some_and(|pod| pod.read == revision)
    }

    /// Reports whether a pod of the node that was read needs an object of its namespace.
    pub(super) fn is_needed(&self, node: &str, namespace: &str, need: &Need) -> bool {
        let pods = self.pods.read();
        let needs = pods.nodes.get(node).and_then(|own| own.needs.get(namespace));
        needs.is_some_and(|needs| needs.contains_key(need))
    }

    /// All PersistentVolumes as of now.
    pub fn replace_volumes(&self, volumes: impl Iterator<Item = (ObjectKey, Revision, Vec<u8>)>) {
        let read =
            volumes.map(|(key, revision, json)| (key, super::relations::volume_needs(revision, &json)));
        let mut fresh = Volumes::default();
        read.for_each(|(key, needs)| fresh.put(&key.name, needs));
        *self.volumes.write() = fresh;
    }

    /// A PersistentVolume as it is since a revision.
    pub fn put_volume(&self, key: &ObjectKey, revision: Revision, json: &[u8]) {
        let needs = super::relations::volume_needs(revision, json);
        self.volumes.write().put(&key.name, needs);
    }

    /// A PersistentVolume that is no longer there.
    pub fn remove_volume(&self, key: &ObjectKey) {
        self.volumes.write().remove(&key.name);
    }

    /// Volumes that need a secret, and the claim of each.
    pub(super) fn volumes_with(&self, secret: &ObjectKey) -> Vec<(Box<str>, ObjectKey)> {
        let volumes = self.volumes.read();
        let names = volumes.by_secret.get(secret).into_iter().flatten();
        let claims = names.filter_map(|name| Some((name.clone(), volumes.read.get(name)?.claim.clone())));
        claims.collect()
    }

    /// Reports whether the volume was read from this version.
    pub(super) fn has_read_volume(&self, name: &str, revision: Revision) -> bool {
        let volumes = self.volumes.read();
        volumes.read.get(name).is_some_and(|own| own.revision == revision)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let (pods, volumes) = (self.pods.read(), self.volumes.read());
        pods.nodes.is_empty()
            && pods.node_of.is_empty()
            && volumes.read.is_empty()
            && volumes.by_secret.is_empty()
    }
}

impl Pods {
    fn put(&mut self, pod: &ObjectHeader, revision: Revision) {
        let node = pod.field("spec.nodeName").filter(|node| !node.is_empty());
        if self.node_of.get(&pod.key).map(|own| &**own) != node {
            self.remove(&pod.key);
        }
        let Some(node) = node else { return };
        let node = self.node_of.entry(pod.key.clone()).or_insert_with(|| node.into());
        let own = self.nodes.entry(Arc::clone(node)).or_default();
        let known = own.pods.entry(pod.key.clone()).or_default();
        // Not the greater one: after a restore of etcd revisions begin again.
        known.newest = revision;
        if known.read != revision {
            own.unread.insert(pod.key.clone());
        }
    }

    fn remove(&mut self, key: &ObjectKey) {
        let Some(node) = self.node_of.remove(key) else {
            return;
        };
        if let Some(own) = self.nodes.get_mut(&node) {
            own.remove(key);
            if own.pods.is_empty() {
                self.nodes.remove(&node);
            }
        }
    }
}

impl NodePods {
    fn remove(&mut self, key: &ObjectKey) {
        self.unread.remove(key);
        if let Some(pod) = self.pods.remove(key) {
            self.forget(&key.namespace, &pod.needs);
        }
    }

    fn read(&mut self, key: &ObjectKey, revision: Revision, needs: BTreeSet<Need>) {
        let Some(pod) = self.pods.get_mut(key) else {
            return;
        };
        let needs: Box<[Need]> = needs.into_iter().collect();
        let before = std::mem::replace(&mut pod.needs, needs.clone());
        pod.read = revision;
        if pod.read < pod.newest {
            self.unread.insert(key.clone());
        } else {
            self.unread.remove(key);
        }
        if !needs.is_empty() {
            let counts = self.needs.entry(key.namespace.as_str().into()).or_default();
            needs
                .into_iter()
                .for_each(|need| *counts.entry(need).or_default() += 1);
        }
        self.forget(&key.namespace, &before);
    }

    fn forget(&mut self, namespace: &str, needs: &[Need]) {
        let Some(counts) = self.needs.get_mut(namespace) else {
            return;
        };
        for need in needs {
            if let Some(count) = counts.get_mut(need) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(need);
                }
            }
        }
        if counts.is_empty() {
            self.needs.remove(namespace);
        }
    }
}

impl Volumes {
    fn put(&mut self, name: &str, needs: VolumeNeeds) {
        self.remove(name);
        for secret in &needs.secrets {
            let names = self.by_secret.entry(secret.clone()).or_default();
            names.insert(name.into());
        }
        self.read.insert(name.into(), needs);
    }

    fn remove(&mut self, name: &str) {
        let Some(needs) = self.read.remove(name) else {
            return;
        };
        for secret in &needs.secrets {
            if let Some(names) = self.by_secret.get_mut(secret) {
                names.remove(name);
                if names.is_empty() {
                    self.by_secret.remove(secret);
                }
            }
        }
    }
}
