//! Nodes that are nominated for pods, and the pods that go for them.
//!
//! A nomination counts from the decision on, not from when the API shows it: until its victims are gone, or one of them stays,
//! no other pod goes for the same one.

use crate::pod::PodInfo;
use machinery_meta::ObjectKey;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Pods that wait for their victims to go, by their nominated node.
#[derive(Debug, Default)]
pub struct Nominations {
    by_node: HashMap<Box<str>, Vec<Arc<PodInfo>>>,
    by_pod: HashMap<ObjectKey, Nominated>,
}

/// Decision for a pod.
#[derive(Debug)]
struct Nominated {
    node: Box<str>,
    /// Uids of the pods that go for it.
    victims: HashSet<Box<str>>,
}

impl Nominations {
    pub fn add(&mut self, pod: &Arc<PodInfo>, node: &str) {
        self.remove(pod);
        self.by_node.entry(node.into()).or_default().push(Arc::clone(pod));
        let nominated = Nominated {
            node: node.into(),
            victims: HashSet::new(),
        };
        self.by_pod.insert(pod.key.clone(), nominated);
    }

    /// Notes the pods that are about to go for a nominated pod.
    pub(crate) fn preempts(&mut self, pod: &PodInfo, victims: &[Arc<PodInfo>]) {
        if let Some(own) = self.by_pod.get_mut(&pod.key) {
            own.victims = victims.iter().map(|victim| victim.uid().into()).collect();
        }
    }

    /// A victim stays after all: it could not be deleted.
    pub(crate) fn stays(&mut self, pod: &PodInfo, victim: &PodInfo) {
        if let Some(own) = self.by_pod.get_mut(&pod.key) {
            own.victims.remove(victim.uid());
        }
    }

    /// Reports whether the other pod was chosen to go for this one.
    pub(crate) fn is_victim(&self, pod: &PodInfo, other: &PodInfo) -> bool {
        let own = self.by_pod.get(&pod.key);
        own.is_some_and(|own| own.victims.contains(other.uid()))
    }

    /// The node that is nominated for the pod.
    pub(crate) fn node_of(&self, pod: &PodInfo) -> Option<&str> {
        self.by_pod.get(&pod.key).map(|own| &*own.node)
    }

    pub fn remove(&mut self, pod: &PodInfo) {
        let Some(own) = self.by_pod.remove(&pod.key) else {
            return;
        };
        if let Some(pods) = self.by_node.get_mut(&own.node) {
            pods.retain(|other| other.key != pod.key);
            if pods.is_empty() {
                self.by_node.remove(&own.node);
            }
        }
    }

    /// Takes over a nominated pod as it is now.
    pub(crate) fn renew(&mut self, pod: &Arc<PodInfo>) {
        let node = self.by_pod.get(&pod.key).map(|own| &own.node);
        let pods = node.and_then(|node| self.by_node.get_mut(node));
        for own in pods.into_iter().flatten().filter(|own| own.key == pod.key) {
            *own = Arc::clone(pod);
        }
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
