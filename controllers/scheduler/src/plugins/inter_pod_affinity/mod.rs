//! Places pods near, or away from, other pods.
//!
//! Four questions, each answered by counters summed over topologies: do pods that my required terms select run
//! there; do pods that I must avoid; do pods that must avoid me; and how much do both sides like each other.

mod hints;

use crate::attempt::{Attempt, ROWS_A_STEP, TermCounters, bounded};
use crate::config::args::InterPodAffinityArgs;
use crate::framework::{
    Change, ClusterEvents, Cycle, Filter, MAX_NODE_SCORE, NodeNames, Plugin, Rejection, Scope,
};
use crate::nodes::{NodeId, NodeTable};
use crate::pod::PodInfo;
use crate::selector_counts::{CounterKey, OwnedTerm, Term, TermKind};
use crate::sparse_column::SparseColumn;
use crate::topology::Topology;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub(super) struct InterPodAffinity {
    args: InterPodAffinityArgs,
}

impl InterPodAffinity {
    pub(super) fn new(args: &InterPodAffinityArgs) -> Self {
        Self { args: args.clone() }
    }

    /// Reports whether the pod is rated by the terms of pods on nodes as well as by its own.
    fn regards_others(&self, attempt: &Attempt) -> bool {
        !self.args.ignore_preferred_terms_of_existing_pods
            || attempt.terms().iter().any(|term| is_preferred(term.0))
    }
}

fn is_preferred(kind: TermKind) -> bool {
    matches!(
        kind,
        TermKind::PreferredAffinity | TermKind::PreferredAntiAffinity
    )
}

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
            .and(ClusterEvents::POD_SELF)
    }

    fn may_help(&self, pod: &PodInfo, change: Change<'_>) -> bool {
        hints::may_help(pod, change)
    }

    fn node_names(&self, cycle: Cycle<'_>) -> Result<NodeNames, Rejection> {
        bounded("affinity terms", cycle.attempt.terms().len(), cycle.nodes).map(|()| None)
    }

    fn prepare(&self, attempt: &Attempt, nodes: &mut NodeTable) {
        attempt.worked(attempt.terms().len());
        if !attempt.terms().is_empty() {
            let (counters, steps) = counters(attempt, nodes);
            attempt.worked(steps);
            attempt.counters(|| counters);
            let mut keys: Vec<&str> = attempt.terms().iter().map(|term| &*term.1.topology_key).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                attempt.worked(nodes.prepare_topology(key));
            }
        }
        let about = attempt.terms_about(nodes);
        let terms = about.iter().filter_map(|id| nodes.counts().term(*id));
        let keys: BTreeSet<Box<str>> = terms.map(|(_, term, _)| term.topology_key.clone()).collect();
        for key in keys {
            attempt.worked(nodes.prepare_topology(&key));
        }
    }

    fn filter<'a>(&self, cycle: Cycle<'a>) -> Option<Box<dyn Filter + 'a>> {
        let affinity = Affinity::new(cycle);
        let avoided = avoided(cycle);
        let avoiding = avoiding(cycle);
        if affinity.is_none() && avoided.is_zero() && avoiding.is_zero() {
            return None;
        }
        Some(Box::new(move |node: NodeId| {
            if affinity
                .as_ref()
                .is_some_and(|affinity| !affinity.satisfied(node))
            {
                return Err(Rejection::unresolvable("node(s) didn't match pod affinity rules"));
            }
            if avoided.at(node) > 0 {
                return Err(Rejection::unschedulable(
                    "node(s) didn't match pod anti-affinity rules",
                ));
            }
            if avoiding.at(node) > 0 {
                return Err(Rejection::unschedulable(
                    "node(s) didn't satisfy existing pods anti-affinity rules",
                ));
            }
            Ok(())
        }))
    }

    fn cluster_scores(&self, cycle: Cycle<'_>, feasible: &[NodeId]) -> Option<Vec<i64>> {
        let (nodes, attempt) = (cycle.nodes, cycle.attempt);
        if !self.regards_others(attempt) {
            return None;
        }
        let mut liked = Sums::default();
        for (term, counts) in own(cycle) {
            let sign = match term.0 {
                TermKind::PreferredAffinity => 1,
                TermKind::PreferredAntiAffinity => -1,
                _ => continue,
            };
            liked.add(
                cycle,
                &term.1.topology_key,
                counts,
                sign * i64::from(term.1.weight),
            );
        }
        let about = attempt.terms_about(nodes);
        for (kind, term, counts) in about.iter().filter_map(|id| nodes.counts().term(*id)) {
            let weight = match kind {
                TermKind::RequiredAffinity => self.args.hard_pod_affinity_weight,
                TermKind::PreferredAffinity => i64::from(term.weight),
                TermKind::PreferredAntiAffinity => -i64::from(term.weight),
                TermKind::RequiredAntiAffinity => continue,
            };
            liked.add(cycle, &term.topology_key, counts, weight);
        }
        if liked.is_zero() {
            return None;
        }
        attempt.worked(liked.by_key.len() * feasible.len() / ROWS_A_STEP);
        let raw = |node: &NodeId| liked.at(*node);
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

/// Counts of counters, summed over the topologies of their keys.
#[derive(Default)]
struct Sums<'a> {
    by_key: BTreeMap<&'a str, OfKey<'a>>,
}

/// The counters of one topology key.
struct OfKey<'a> {
    topology: &'a Topology,
    /// By number of the value.
    sums: Vec<i64>,
}

impl<'a> Sums<'a> {
    /// Adds a counter, each pod of which counts this much. A key that no node has counts nothing.
    fn add(&mut self, cycle: Cycle<'a>, key: &'a str, counts: &SparseColumn, each: i64) {
        cycle.attempt.worked(1 + counts.len() / ROWS_A_STEP);
        let Some(topology) = cycle.nodes.topology(key) else {
            return;
        };
        let own = self.by_key.entry(key).or_insert_with(|| OfKey {
            topology,
            sums: vec![0; topology.value_count()],
        });
        for (node, count) in counts.iter() {
            if let Some(value) = topology.value(node) {
                own.sums[value] += i64::from(count) * each;
            }
        }
    }

    fn at(&self, node: NodeId) -> i64 {
        self.by_key.values().map(|own| own.at(node)).sum()
    }

    fn is_zero(&self) -> bool {
        self.by_key.values().all(OfKey::is_zero)
    }
}

impl OfKey<'_> {
    fn at(&self, node: NodeId) -> i64 {
        self.topology.value(node).map_or(0, |value| self.sums[value])
    }

    fn is_zero(&self) -> bool {
        self.sums.iter().all(|sum| *sum == 0)
    }
}

/// The pod's required affinity: one and the same running pod must match all terms.
struct Affinity<'a> {
    /// The terms count the same pods: only their keys differ.
    sums: Sums<'a>,
    /// A node lacks the labels of all of these.
    keys: BTreeSet<&'a str>,
    nothing_matches: bool,
    matches_itself: bool,
}

impl<'a> Affinity<'a> {
    fn new(cycle: Cycle<'a>) -> Option<Self> {
        let counter = cycle.attempt.counters(TermCounters::default).required?;
        let counts = cycle.nodes.counts().by_node(counter);
        let mut sums = Sums::default();
        let required = || terms(cycle.attempt, TermKind::RequiredAffinity);
        let keys: BTreeSet<&str> = required().map(|term| &*term.topology_key).collect();
        for key in &keys {
            sums.add(cycle, key, counts, 1);
        }
        let (pod, namespaces) = (&cycle.pod.pod.metadata, cycle.nodes.namespaces());
        cycle.attempt.worked(cycle.attempt.terms().len());
        Some(Self {
            nothing_matches: sums.is_zero(),
            sums,
            keys,
            matches_itself: required().all(|one| one.selector.matches(pod, namespaces)),
        })
    }

    /// The first pod of a group that wants to be together has no pod to join: it may go anywhere the labels are.
    fn satisfied(&self, node: NodeId) -> bool {
        if self.sums.by_key.len() < self.keys.len() {
            return false;
        }
        let mut all = self.sums.by_key.values();
        if !all.all(|own| own.topology.value(node).is_some()) {
            return false;
        }
        self.sums.by_key.values().all(|own| own.at(node) > 0) || (self.nothing_matches && self.matches_itself)
    }
}

/// Pods this pod must not be with.
fn avoided<'a>(cycle: Cycle<'a>) -> Sums<'a> {
    let mut sums = Sums::default();
    for (term, counts) in own(cycle) {
        if term.0 == TermKind::RequiredAntiAffinity {
            sums.add(cycle, &term.1.topology_key, counts, 1);
        }
    }
    sums
}

/// Pods that must not be with this pod.
fn avoiding<'a>(cycle: Cycle<'a>) -> Sums<'a> {
    let mut sums = Sums::default();
    let about = cycle.attempt.terms_about(cycle.nodes);
    for (kind, term, counts) in about.iter().filter_map(|id| cycle.nodes.counts().term(*id)) {
        if kind == TermKind::RequiredAntiAffinity {
            sums.add(cycle, &term.topology_key, counts, 1);
        }
    }
    sums
}

fn terms(attempt: &Attempt, kind: TermKind) -> impl Iterator<Item = &Term> {
    let own = attempt.terms().iter();
    own.filter(move |term| term.0 == kind).map(|term| &term.1)
}

/// The pod's own terms other than those of required affinity, with their counters.
fn own<'a>(cycle: Cycle<'a>) -> impl Iterator<Item = (&'a OwnedTerm, &'a SparseColumn)> {
    let terms = others(cycle.attempt);
    let counters = &cycle.attempt.counters(TermCounters::default).others;
    let counts = counters.iter().map(move |id| cycle.nodes.counts().by_node(*id));
    terms.zip(counts)
}

fn others(attempt: &Attempt) -> impl Iterator<Item = &OwnedTerm> {
    let own = attempt.terms().iter().map(|term| &**term);
    own.filter(|term| term.0 != TermKind::RequiredAffinity)
}

/// Makes the counters of the pod's own terms, and says in how many steps.
fn counters(attempt: &Attempt, nodes: &mut NodeTable) -> (TermCounters, usize) {
    let counter = |selectors| CounterKey {
        selectors,
        skip_deleting: false,
    };
    let required = terms(attempt, TermKind::RequiredAffinity).map(|term| term.selector.clone());
    let required: Vec<_> = required.collect();
    let has_required = !required.is_empty();
    let others = others(attempt).map(|term| counter(vec![term.1.selector.clone()]));
    let keys = others.chain(has_required.then(|| counter(required))).collect();
    let (mut others, steps) = nodes.prepare_counters(keys);
    let required = if has_required { others.pop() } else { None };
    (TermCounters { required, others }, steps)
}
