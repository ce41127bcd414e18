//! Places pods near, or away from, other pods.
//!
//! Four questions, each answered by counters summed over topologies: do pods that my required terms select run
//! there; do pods that I must avoid; do pods that must avoid me; and how much do both sides like each other.

use crate::attempt::{Attempt, bounded};
use crate::framework::{ClusterEvents, Cycle, Filter, MAX_NODE_SCORE, NodeNames, Plugin, Rejection, Scope};
use crate::nodes::{NO_TOPOLOGY, NodeId, NodeTable};
use crate::selector_counts::{CounterKey, Term, TermKind};
use std::collections::BTreeSet;

/// What a required affinity of a pod already running is worth to the pods it selects.
const HARD_POD_AFFINITY_WEIGHT: i64 = 1;

#[derive(Debug)]
pub(super) struct InterPodAffinity;

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        "InterPodAffinity"
    }

    fn scope(&self) -> Scope {
        Scope::Cluster
    }

    fn requeue_on(&self) -> ClusterEvents {
        ClusterEvents::POD_PLACED
            .and(ClusterEvents::POD_GONE)
            .and(ClusterEvents::POD_LABEL)
            .and(ClusterEvents::NODE_ADD)
            .and(ClusterEvents::NODE_LABEL)
            .and(ClusterEvents::NAMESPACE_LABEL)
    }

    fn node_names(&self, cycle: Cycle<'_>) -> Result<NodeNames, Rejection> {
        bounded("affinity terms", cycle.attempt.terms().len(), cycle.nodes).map(|()| None)
    }

    fn prepare(&self, attempt: &Attempt, nodes: &mut NodeTable) {
        attempt.worked(attempt.terms().len());
        if let Some(counter) = affinity_counter(attempt) {
            attempt.worked(nodes.prepare_counter(&counter));
            for key in affinity_keys(attempt) {
                attempt.worked(nodes.prepare_topology(key));
            }
        }
        for (kind, term) in attempt.terms() {
            if *kind != TermKind::RequiredAffinity {
                attempt.worked(nodes.prepare(&counter_of(term), &term.topology_key));
            }
        }
        let mut missing: BTreeSet<Box<str>> = BTreeSet::new();
        for (_, term, _) in nodes.counts().existing_terms() {
            if nodes.topology(&term.topology_key).is_none() {
                missing.insert(term.topology_key.clone());
            }
        }
        for key in missing {
            attempt.worked(nodes.prepare_topology(&key));
        }
    }

    fn filter<'a>(&self, cycle: Cycle<'a>) -> Option<Box<dyn Filter + 'a>> {
        let affinity = Affinity::new(cycle);
        let avoided = avoided(cycle);
        let avoiding = avoiding(cycle);
        if affinity.is_none() && avoided.is_empty() && avoiding.is_empty() {
            return None;
        }
        let own = affinity.as_ref().map_or(0, |affinity| affinity.terms.len());
        let columns = own + avoided.len() + avoiding.len();
        cycle.attempt.worked(cycle.attempt.terms().len());
        cycle.attempt.summed(columns, cycle.nodes);
        Some(Box::new(move |node: NodeId| {
            if affinity
                .as_ref()
                .is_some_and(|affinity| !affinity.satisfied(node))
            {
                return Err(Rejection::unresolvable("node(s) didn't match pod affinity rules"));
            }
            if avoided.iter().any(|sums| sums.at(node) > 0) {
                return Err(Rejection::unschedulable(
                    "node(s) didn't match pod anti-affinity rules",
                ));
            }
            if avoiding.iter().any(|sums| sums.at(node) > 0) {
                return Err(Rejection::unschedulable(
                    "node(s) didn't satisfy existing pods anti-affinity rules",
                ));
            }
            Ok(())
        }))
    }

    fn cluster_scores(&self, cycle: Cycle<'_>, feasible: &[NodeId]) -> Option<Vec<i64>> {
        let mut liked: Vec<(i64, Sums<'_>)> = Vec::new();
        for (kind, term) in cycle.attempt.terms() {
            let sign = match kind {
                TermKind::PreferredAffinity => 1,
                TermKind::PreferredAntiAffinity => -1,
                _ => continue,
            };
            let counts = cycle.nodes.counts().per_node(&counter_of(term));
            liked.push((
                sign * i64::from(term.weight),
                Sums::new(cycle.nodes, &term.topology_key, counts),
            ));
        }
        for (kind, term, counts) in cycle.nodes.counts().existing_terms() {
            let weight = match kind {
                TermKind::RequiredAffinity => HARD_POD_AFFINITY_WEIGHT,
                TermKind::PreferredAffinity => i64::from(term.weight),
                TermKind::PreferredAntiAffinity => -i64::from(term.weight),
                TermKind::RequiredAntiAffinity => continue,
            };
            if term
                .selector
                .matches(&cycle.pod.pod.metadata, cycle.nodes.namespaces())
            {
                liked.push((weight, Sums::new(cycle.nodes, &term.topology_key, counts)));
            }
        }
        cycle.attempt.summed(liked.len(), cycle.nodes);
        if liked.iter().all(|(_, sums)| sums.is_zero()) {
            return None;
        }
        let raw = |node: &NodeId| liked.iter().map(|(weight, sums)| weight * sums.at(*node)).sum();
        Some(normalized(&feasible.iter().map(raw).collect::<Vec<i64>>()))
    }
}

/// The least liked node becomes 0, the most liked 100.
fn normalized(raw: &[i64]) -> Vec<i64> {
    let (min, max) = (
        raw.iter().min().copied().unwrap_or(0),
        raw.iter().max().copied().unwrap_or(0),
    );
    raw.iter()
        .map(|score| {
            if max > min {
                MAX_NODE_SCORE * (score - min) / (max - min)
            } else {
                0
            }
        })
        .collect()
}

/// Counts of a counter summed over one topology.
struct Sums<'a> {
    of_node: &'a [u32],
    sums: Vec<i64>,
}

impl<'a> Sums<'a> {
    fn new(nodes: &'a NodeTable, topology_key: &str, per_node: &[u32]) -> Self {
        let Some(topology) = nodes.topology(topology_key) else {
            return Self {
                of_node: &[],
                sums: Vec::new(),
            };
        };
        let mut sums = vec![0; topology.value_count()];
        for (value, count) in topology.of_node.iter().zip(per_node) {
            if *value != NO_TOPOLOGY {
                sums[*value as usize] += i64::from(*count);
            }
        }
        Self {
            of_node: &topology.of_node,
            sums,
        }
    }

    fn has_label(&self, node: NodeId) -> bool {
        self.of_node.get(node).is_some_and(|value| *value != NO_TOPOLOGY)
    }

    fn at(&self, node: NodeId) -> i64 {
        let Some(value) = self.of_node.get(node).filter(|value| **value != NO_TOPOLOGY) else {
            return 0;
        };
        self.sums[*value as usize]
    }

    fn is_zero(&self) -> bool {
        self.sums.iter().all(|sum| *sum == 0)
    }
}

/// The pod's required affinity: one and the same running pod must match all terms.
struct Affinity<'a> {
    /// One of each topology key: the terms count the same pods.
    terms: Vec<Sums<'a>>,
    nothing_matches: bool,
    matches_itself: bool,
}

impl<'a> Affinity<'a> {
    fn new(cycle: Cycle<'a>) -> Option<Self> {
        let counter = affinity_counter(cycle.attempt)?;
        let counts = cycle.nodes.counts().per_node(&counter);
        let sums = |key: &str| Sums::new(cycle.nodes, key, counts);
        let all: Vec<Sums<'a>> = affinity_keys(cycle.attempt).into_iter().map(sums).collect();
        Some(Self {
            nothing_matches: all.iter().all(Sums::is_zero),
            terms: all,
            matches_itself: counter
                .selectors
                .iter()
                .all(|one| one.matches(&cycle.pod.pod.metadata, cycle.nodes.namespaces())),
        })
    }

    /// The first pod of a group that wants to be together has nobody to join: it may go anywhere the labels are.
    fn satisfied(&self, node: NodeId) -> bool {
        if !self.terms.iter().all(|sums| sums.has_label(node)) {
            return false;
        }
        self.terms.iter().all(|sums| sums.at(node) > 0) || (self.nothing_matches && self.matches_itself)
    }
}

/// Pods this pod must not be with, by term.
fn avoided<'a>(cycle: Cycle<'a>) -> Vec<Sums<'a>> {
    let counts = |term: &Term| cycle.nodes.counts().per_node(&counter_of(term));
    let sums = |term: &Term| Sums::new(cycle.nodes, &term.topology_key, counts(term));
    terms(cycle.attempt, TermKind::RequiredAntiAffinity)
        .map(sums)
        .collect()
}

/// Pods that must not be with this pod, by term.
fn avoiding<'a>(cycle: Cycle<'a>) -> Vec<Sums<'a>> {
    let mut all = Vec::new();
    for (kind, term, counts) in cycle.nodes.counts().existing_terms() {
        if kind == TermKind::RequiredAntiAffinity
            && term
                .selector
                .matches(&cycle.pod.pod.metadata, cycle.nodes.namespaces())
        {
            all.push(Sums::new(cycle.nodes, &term.topology_key, counts));
        }
    }
    all
}

fn terms(attempt: &Attempt, kind: TermKind) -> impl Iterator<Item = &Term> {
    attempt
        .terms()
        .iter()
        .filter(move |(own, _)| *own == kind)
        .map(|(_, term)| term)
}

/// The distinct topology keys of the required affinity.
fn affinity_keys(attempt: &Attempt) -> BTreeSet<&str> {
    terms(attempt, TermKind::RequiredAffinity)
        .map(|term| &*term.topology_key)
        .collect()
}

fn counter_of(term: &Term) -> CounterKey {
    CounterKey {
        selectors: vec![term.selector.clone()],
        skip_deleting: false,
    }
}

fn affinity_counter(attempt: &Attempt) -> Option<CounterKey> {
    let selectors: Vec<_> = terms(attempt, TermKind::RequiredAffinity)
        .map(|term| term.selector.clone())
        .collect();
    if selectors.is_empty() {
        None
    } else {
        Some(CounterKey {
            selectors,
            skip_deleting: false,
        })
    }
}
