//! Nodes that are nominated for pods.

use crate::pod::PodInfo;
use std::collections::HashMap;
use std::sync::Arc;

/// Pods that wait for their victims to go, by their nominated node.
#[derive(Debug, Default)]
pub struct Nominations {
    by_node: HashMap<Box<str>, Vec<Arc<PodInfo>>>,
}

impl Nominations {
    pub fn add(&mut self, pod: &Arc<PodInfo>, node: &str) {
        self.remove(pod);
        self.by_node.entry(node.into()).or_default().push(Arc::clone(pod));
    }

    pub fn remove(&mut self, pod: &PodInfo) {
        for pods in self.by_node.values_mut() {
            pods.retain(|own| own.key != pod.key);
        }
        self.by_node.retain(|_, pods| !pods.is_empty());
    }

    /// Nominated pods on the node that the given pod must respect: other pods of at least its priority.
    pub fn respected(&self, pod: &PodInfo, node: &str) -> Vec<Arc<PodInfo>> {
        let all = self.by_node.get(node).into_iter().flatten();
        all.filter(|own| own.key != pod.key && own.priority() >= pod.priority())
            .cloned()
            .collect()
    }

    /// Nominated pods of lower priority, whose nomination a preemption clears.
    pub fn lower(&self, pod: &PodInfo, node: &str) -> Vec<Arc<PodInfo>> {
        let all = self.by_node.get(node).into_iter().flatten();
        all.filter(|own| own.key != pod.key && own.priority() < pod.priority())
            .cloned()
            .collect()
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &str> {
        self.by_node.keys().map(|name| &**name)
    }

    pub fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }
}
