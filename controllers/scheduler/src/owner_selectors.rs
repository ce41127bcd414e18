//! Selectors of pods that belong together when their author gave none: pods of the same services and the same owner.

use crate::object::{LabelSelector, Pod, Requirement};
use std::collections::HashMap;

/// Kinds whose selectors are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OwnerKind {
    Service,
    ReplicationController,
    ReplicaSet,
    StatefulSet,
}

impl OwnerKind {
    fn of(kind: &str) -> Option<Self> {
        match kind {
            "ReplicationController" => Some(Self::ReplicationController),
            "ReplicaSet" => Some(Self::ReplicaSet),
            "StatefulSet" => Some(Self::StatefulSet),
            _ => None,
        }
    }
}

type ByOwner = HashMap<(OwnerKind, Box<str>), LabelSelector>;

/// Selectors by kind, namespace and name.
#[derive(Debug, Default)]
pub struct OwnerSelectors {
    by_namespace: HashMap<Box<str>, ByOwner>,
}

impl OwnerSelectors {
    /// An owner was added or changed; `None` when it is gone.
    pub fn set(&mut self, kind: OwnerKind, namespace: &str, name: &str, selector: Option<LabelSelector>) {
        let key = (kind, Box::from(name));
        match selector {
            Some(selector) => {
                self.by_namespace
                    .entry(namespace.into())
                    .or_default()
                    .insert(key, selector);
            }
            None => {
                let Some(own) = self.by_namespace.get_mut(namespace) else {
                    return;
                };
                own.remove(&key);
                if own.is_empty() {
                    self.by_namespace.remove(namespace);
                }
            }
        }
    }

    /// The selectors of the services that select the pod and of its owner, all together; `None` when there are none.
    pub fn default_selector(&self, pod: &Pod) -> Option<LabelSelector> {
        let own = self.by_namespace.get(&pod.metadata.namespace)?;
        let mut labels: Vec<(&str, &str)> = Vec::new();
        let mut expressions: Vec<Requirement> = Vec::new();
        for ((kind, _), selector) in own {
            if *kind == OwnerKind::Service
                && !selector.match_labels.is_empty()
                && selector
                    .match_labels
                    .iter()
                    .all(|(key, value)| pod.metadata.labels.get(key) == Some(value))
            {
                labels.extend(selector.match_labels.iter());
            }
        }
        if let Some(owner) = pod
            .metadata
            .owner_references
            .iter()
            .find(|owner| owner.controller)
            && let Some(kind) = OwnerKind::of(&owner.kind)
            && let Some(selector) = own.get(&(kind, owner.name.clone()))
        {
            labels.extend(selector.match_labels.iter());
            expressions.clone_from(&selector.match_expressions);
        }
        if labels.is_empty() && expressions.is_empty() {
            return None;
        }
        Some(LabelSelector {
            match_labels: labels.into_iter().collect(),
            match_expressions: expressions,
        })
    }
}
