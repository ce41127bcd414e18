//! Terms of affinity to pods, with the namespaces that they are about.

use crate::object::{Affinity, LabelSelector, Labels, Metadata, PodAffinityTerm, WeightedPodAffinityTerm};
use crate::selector::labels_match;
use std::collections::HashMap;
use std::sync::Arc;

/// Labels of every namespace, for namespace selectors.
pub type Namespaces = HashMap<Box<str>, Labels>;

/// Selects pods in some namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodSelector {
    pub namespaces: Box<[Box<str>]>,
    pub namespace_selector: Option<Box<LabelSelector>>,
    pub labels: Option<LabelSelector>,
}

impl PodSelector {
    pub fn in_namespace(namespace: &str, labels: LabelSelector) -> Self {
        Self {
            namespaces: Box::new([namespace.into()]),
            namespace_selector: None,
            labels: Some(labels),
        }
    }

    pub fn matches(&self, pod: &Metadata, namespaces: &Namespaces) -> bool {
        self.covers(&pod.namespace, namespaces) && labels_match(self.labels.as_ref(), &pod.labels)
    }

    fn covers(&self, namespace: &str, namespaces: &Namespaces) -> bool {
        if self.namespaces.iter().any(|own| &**own == namespace) {
            return true;
        }
        let Some(selector) = &self.namespace_selector else {
            return false;
        };
        let none = Labels::default();
        labels_match(Some(&**selector), namespaces.get(namespace).unwrap_or(&none))
    }
}

/// One affinity or anti-affinity term; the weight is 0 for required ones.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Term {
    pub topology_key: Box<str>,
    pub selector: PodSelector,
    pub weight: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TermKind {
    RequiredAffinity,
    RequiredAntiAffinity,
    PreferredAffinity,
    PreferredAntiAffinity,
}

/// A term of pods on nodes.
pub type OwnedTerm = (TermKind, Term);

/// All terms of a pod of the namespace.
pub fn terms_of(namespace: &str, affinity: &Affinity) -> Vec<Arc<OwnedTerm>> {
    let (near, far) = (affinity.pod_affinity.get(), affinity.pod_anti_affinity.get());
    let mut all: Vec<Arc<OwnedTerm>> = Vec::new();
    let required = [
        (TermKind::RequiredAffinity, &near.required),
        (TermKind::RequiredAntiAffinity, &far.required),
    ];
    for (kind, terms) in required {
        all.extend(
            terms
                .iter()
                .map(|term| Arc::new((kind, term_of(term, 0, namespace)))),
        );
    }
    let preferred = [
        (TermKind::PreferredAffinity, &near.preferred),
        (TermKind::PreferredAntiAffinity, &far.preferred),
    ];
    for (kind, terms) in preferred {
        let own = |term: &WeightedPodAffinityTerm| {
            Arc::new((kind, term_of(&term.pod_affinity_term, term.weight, namespace)))
        };
        all.extend(terms.iter().map(own));
    }
    all
}

/// Without namespaces and namespace selector a term is about the pod's own namespace.
fn term_of(term: &PodAffinityTerm, weight: i32, namespace: &str) -> Term {
    let own = term.namespaces.is_empty() && term.namespace_selector.is_none();
    let namespaces: Box<[Box<str>]> = if own {
        Box::new([namespace.into()])
    } else {
        term.namespaces.clone().into()
    };
    Term {
        topology_key: term.topology_key.clone(),
        selector: PodSelector {
            namespaces,
            namespace_selector: term.namespace_selector.clone().map(Box::new),
            labels: term.label_selector.clone(),
        },
        weight,
    }
}
