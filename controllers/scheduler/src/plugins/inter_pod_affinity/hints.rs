//! Changes of pods and nodes after which a pod may have those near that it wants, or those far that it does not.
//!
//! Upstream has no look at the terms of the pods on nodes: a pod that they keep away waits there until it is tried anyway.

use crate::framework::{Change, NodeState};
use crate::nodes::NodeTable;
use crate::pod::PodInfo;
use crate::pod_terms::{Namespaces, OwnedTerm, Term, TermKind};
use std::sync::Arc;

/// Pods and terms that are compared; beyond, the change is taken as one that may help.
const MOST_TERMS: usize = 64;

pub(super) fn may_help(pod: &PodInfo, change: Change<'_>) -> bool {
    if let Change::Own(before) = change {
        return before.pod.metadata.labels != pod.pod.metadata.labels || !before.has_terms_of(pod);
    }
    let Some(terms) = pod.terms_if_short().filter(|own| own.len() <= MOST_TERMS) else {
        return true;
    };
    match change {
        Change::Placed { before, after, nodes } => {
            pods_may_help(pod, terms, before, after, nodes.namespaces())
        }
        Change::Node {
            before,
            after: Some(after),
            nodes,
        } => node_may_help(terms, before, after, nodes),
        Change::Node { .. } | Change::Own(_) => true,
    }
}

/// A pod helps that all terms of affinity want and did not, and one that is avoided no longer, or does not avoid the pod any more.
fn pods_may_help(
    pod: &PodInfo,
    terms: &[Arc<OwnedTerm>],
    before: Option<&PodInfo>,
    after: Option<&PodInfo>,
    namespaces: &Namespaces,
) -> bool {
    let is_wanted = |other: &PodInfo| {
        let mut wanted = of_kind(terms, TermKind::RequiredAffinity).peekable();
        wanted.peek().is_some() && wanted.all(|term| term.selector.matches(&other.pod.metadata, namespaces))
    };
    let is_avoided = |term: &Term, other: Option<&PodInfo>| {
        other.is_some_and(|other| term.selector.matches(&other.pod.metadata, namespaces))
    };
    let mut avoided = of_kind(terms, TermKind::RequiredAntiAffinity);
    after.is_some_and(is_wanted) && !before.is_some_and(is_wanted)
        || avoided.any(|term| is_avoided(term, before) && !is_avoided(term, after))
        || after.is_none() && before.is_some_and(|gone| avoids(gone, pod, namespaces))
}

/// Reports whether the pod must not be with the other one, or has so many terms that it may.
fn avoids(own: &PodInfo, other: &PodInfo, namespaces: &Namespaces) -> bool {
    let Some(terms) = own.terms_if_short().filter(|terms| terms.len() <= MOST_TERMS) else {
        return true;
    };
    of_kind(terms, TermKind::RequiredAntiAffinity)
        .any(|term| term.selector.matches(&other.pod.metadata, namespaces))
}

/// A node helps that has the labels of all terms of affinity, and is new, in another domain than it was, or in none that may be
/// avoided where it was in one.
fn node_may_help(
    terms: &[Arc<OwnedTerm>],
    before: Option<&NodeState>,
    after: &NodeState,
    nodes: &NodeTable,
) -> bool {
    let has = |term: &Term| after.labels.get(&term.topology_key).is_some();
    if !of_kind(terms, TermKind::RequiredAffinity).all(has) {
        return false;
    }
    let Some(before) = before else { return true };
    let moved = |key: &str| before.labels.get(key) != after.labels.get(key);
    let left = |key: &str| before.labels.get(key).is_some() && moved(key);
    of_kind(terms, TermKind::RequiredAffinity).any(|term| moved(&term.topology_key))
        || of_kind(terms, TermKind::RequiredAntiAffinity).any(|term| left(&term.topology_key))
        || nodes.counts().avoiding_keys().any(left)
}

fn of_kind(terms: &[Arc<OwnedTerm>], kind: TermKind) -> impl Iterator<Item = &Term> {
    let own = terms.iter().filter(move |term| term.0 == kind);
    own.map(|term| &term.1)
}
