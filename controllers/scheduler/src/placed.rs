//! Pods on nodes, by namespace and name.

use crate::node_id::NodeId;
use crate::pod::PodInfo;
use machinery_meta::ObjectKey;
use std::collections::HashMap;
use std::sync::Arc;

type OfNamespace = HashMap<Box<str>, (NodeId, Arc<PodInfo>)>;

/// Nodes of all placed pods.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    by_namespace: HashMap<Box<str>, OfNamespace>,
    count: usize,
}

impl Placed {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn node_of(&self, key: &ObjectKey) -> Option<NodeId> {
        let (node, _) = self.by_namespace.get(&*key.namespace)?.get(&*key.name)?;
        Some(*node)
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Arc<PodInfo>> {
        let (_, pod) = self.by_namespace.get(&*key.namespace)?.get(&*key.name)?;
        Some(pod)
    }

    pub(crate) fn insert(&mut self, pod: &Arc<PodInfo>, node: NodeId) {
        let own = self.by_namespace.entry((*pod.key.namespace).into()).or_default();
        let before = own.insert((*pod.key.name).into(), (node, Arc::clone(pod)));
        self.count += usize::from(before.is_none());
    }

    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<NodeId> {
        let own = self.by_namespace.get_mut(&*key.namespace)?;
        let (node, _) = own.remove(&*key.name)?;
        if own.is_empty() {
            self.by_namespace.remove(&*key.namespace);
        }
        self.count -= 1;
        Some(node)
    }

    pub(crate) fn of_namespace(&self, namespace: &str) -> impl Iterator<Item = &(NodeId, Arc<PodInfo>)> {
        self.by_namespace
            .get(namespace)
            .into_iter()
            .flat_map(HashMap::values)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &(NodeId, Arc<PodInfo>)> {
        self.by_namespace.values().flat_map(HashMap::values)
    }
}
