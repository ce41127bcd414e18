//! Pods on nodes, by namespace and name, and by their labels.
//!
//! A counter that is made anew looks at the pods that may count, not at all of their namespace.

use crate::node_id::NodeId;
use crate::pod::PodInfo;
use machinery_meta::ObjectKey;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// Labels of a pod by which it is found; one with more is looked at whatever label is looked for.
const MAX_LABELS: usize = 16;

/// A pod and its node.
type OnNode = (NodeId, Arc<PodInfo>);

/// Nodes of all placed pods.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    by_namespace: HashMap<Box<str>, OfNamespace>,
    hasher: RandomState,
    count: usize,
}

/// Pods of one namespace by small numbers.
#[derive(Debug, Default)]
struct OfNamespace {
    pods: Vec<Option<OnNode>>,
    free: Vec<u32>,
    by_name: HashMap<Box<str>, u32>,
    /// Pods by hashes of their labels: another pod that is found by chance is compared all the same.
    by_label: HashMap<u64, BTreeSet<u32>>,
    with_many_labels: BTreeSet<u32>,
}

impl OfNamespace {
    fn get(&self, name: &str) -> Option<&OnNode> {
        self.at(*self.by_name.get(name)?)
    }

    fn at(&self, id: u32) -> Option<&OnNode> {
        self.pods.get(id as usize)?.as_ref()
    }

    /// Takes over a pod that has the labels of the one of its name before. Returns whether there is such a one.
    fn replace(&mut self, pod: &Arc<PodInfo>, node: NodeId) -> bool {
        let id = self.by_name.get(&*pod.key.name);
        let own = id.and_then(|id| self.pods.get_mut(*id as usize)?.as_mut());
        let is_alike = |own: &&mut OnNode| own.1.pod.metadata.labels == pod.pod.metadata.labels;
        let Some(own) = own.filter(is_alike) else {
            return false;
        };
        *own = (node, Arc::clone(pod));
        true
    }

    fn insert(&mut self, pod: &Arc<PodInfo>, node: NodeId, hasher: &RandomState) {
        let id = self.free.pop().unwrap_or_else(|| {
            self.pods.push(None);
            u32::try_from(self.pods.len() - 1).expect("fewer pods than memory has room for")
        });
        self.by_name.insert((*pod.key.name).into(), id);
        self.file(pod, id, hasher, true);
        self.pods[id as usize] = Some((node, Arc::clone(pod)));
    }

    fn remove(&mut self, name: &str, hasher: &RandomState) -> Option<OnNode> {
        let id = self.by_name.remove(name)?;
        let (node, pod) = self.pods.get_mut(id as usize)?.take()?;
        self.file(&pod, id, hasher, false);
        self.free.push(id);
        Some((node, pod))
    }

    fn file(&mut self, pod: &PodInfo, id: u32, hasher: &RandomState, came: bool) {
        let labels = &pod.pod.metadata.labels;
        if labels.len() > MAX_LABELS {
            set(&mut self.with_many_labels, id, came);
            return;
        }
        for label in labels.iter() {
            let place = hasher.hash_one(label);
            let ids = self.by_label.entry(place).or_default();
            set(ids, id, came);
            if ids.is_empty() {
                self.by_label.remove(&place);
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = &OnNode> {
        self.pods.iter().flatten()
    }

    /// Pods that have one of the labels, which are of one key, and those with so many labels that they may; each once.
    fn with_any(&self, places: &[u64]) -> impl Iterator<Item = &OnNode> {
        let filed = places.iter().filter_map(|place| self.by_label.get(place));
        let ids = filed.flatten().chain(&self.with_many_labels);
        ids.filter_map(|id| self.at(*id))
    }
}

fn set(ids: &mut BTreeSet<u32>, id: u32, is_in: bool) {
    match is_in {
        true => ids.insert(id),
        false => ids.remove(&id),
    };
}

impl Placed {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn node_of(&self, key: &ObjectKey) -> Option<NodeId> {
        let (node, _) = self.by_namespace.get(&*key.namespace)?.get(&key.name)?;
        Some(*node)
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Arc<PodInfo>> {
        let (_, pod) = self.by_namespace.get(&*key.namespace)?.get(&key.name)?;
        Some(pod)
    }

    pub(crate) fn insert(&mut self, pod: &Arc<PodInfo>, node: NodeId) {
        let own = self.by_namespace.entry((*pod.key.namespace).into()).or_default();
        if own.replace(pod, node) {
            return;
        }
        let before = own.remove(&pod.key.name, &self.hasher);
        own.insert(pod, node, &self.hasher);
        self.count += usize::from(before.is_none());
    }

    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<NodeId> {
        let own = self.by_namespace.get_mut(&*key.namespace)?;
        let (node, _) = own.remove(&key.name, &self.hasher)?;
        if own.by_name.is_empty() {
            self.by_namespace.remove(&*key.namespace);
        }
        self.count -= 1;
        Some(node)
    }

    pub(crate) fn of_namespace(&self, namespace: &str) -> impl Iterator<Item = &OnNode> {
        self.by_namespace
            .get(namespace)
            .into_iter()
            .flat_map(OfNamespace::all)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &OnNode> {
        self.by_namespace.values().flat_map(OfNamespace::all)
    }

    /// Pods that have one of the labels, which are of one key, or so many that they may: of these namespaces, or of all.
    pub(crate) fn with_any_label<'a>(
        &'a self,
        namespaces: Option<&BTreeSet<&str>>,
        labels: &[(&str, &str)],
    ) -> Vec<&'a OnNode> {
        let places: BTreeSet<u64> = labels.iter().map(|label| self.hasher.hash_one(label)).collect();
        let places: Vec<u64> = places.into_iter().collect();
        let of = |own: &'a OfNamespace| own.with_any(&places).collect::<Vec<_>>();
        match namespaces {
            Some(names) => {
                let own = names.iter().filter_map(|name| self.by_namespace.get(*name));
                own.flat_map(of).collect()
            }
            None => self.by_namespace.values().flat_map(of).collect(),
        }
    }
}
