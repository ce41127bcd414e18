//! Keeps pods of one kind spread evenly over zones, nodes or any other topology.
//!
//! Hard constraints filter by skew: matching pods in the node's domain, plus this one, less the fewest in any
//! domain. Soft constraints score: the fewer matching pods in the node's domains, the better. A pod without
//! constraints gets upstream's system defaults, with the selectors of its services and its owner.

mod domains;
mod hints;

use crate::attempt::{Attempt, bounded};
use crate::config::args::PodTopologySpreadArgs;
use crate::framework::{
    Change, ClusterEvents, Cycle, Filter, MAX_NODE_SCORE, NodeNames, Plugin, Rejection, Scope,
};
use crate::nodes::{NodeId, NodeTable};
use crate::object::{LabelSelector, Requirement, TopologySpreadConstraint};
use crate::pod::PodInfo;
use crate::selector::labels_match;
use crate::selector_counts::{CounterKey, PodSelector};
use crate::sparse_column::{NOTHING, SparseColumn};
use crate::topology::Topology;

use domains::Spread;

/// `whenUnsatisfiable` of the constraints that filter.
const HARD: &str = "DoNotSchedule";
/// `whenUnsatisfiable` of those that score.
const SOFT: &str = "ScheduleAnyway";
const HOSTNAME: &str = "kubernetes.io/hostname";

#[derive(Debug)]
pub(super) struct PodTopologySpread {
    args: PodTopologySpreadArgs,
}

impl PodTopologySpread {
    pub(super) fn new(args: &PodTopologySpreadArgs) -> Self {
        Self { args: args.clone() }
    }

    /// Constraints of the pod, or else those of its profile with the selectors of its services and its owner.
    fn constraints(&self, attempt: &Attempt, nodes: &NodeTable, action: &str) -> Vec<Constraint> {
        self.constraints_of(attempt.pod(), attempt.spread_constraints(), nodes, action)
    }

    fn constraints_of(
        &self,
        pod: &PodInfo,
        own: &[TopologySpreadConstraint],
        nodes: &NodeTable,
        action: &str,
    ) -> Vec<Constraint> {
        if !own.is_empty() {
            let own = own.iter().filter(|one| *one.when_unsatisfiable == *action);
            return own
                .map(|one| ready(pod, one, merged_selector(pod, one)))
                .collect();
        }
        let defaults = || {
            let all = self.args.default_constraints.iter();
            all.filter(|one| *one.when_unsatisfiable == *action)
        };
        if defaults().next().is_none() {
            return Vec::new();
        }
        let Some(selector) = nodes.owner_selectors().default_selector(&pod.pod) else {
            return Vec::new();
        };
        let with_selector = |one: &TopologySpreadConstraint| {
            let constraint = TopologySpreadConstraint {
                label_selector: Some(selector.clone()),
                ..one.clone()
            };
            ready(pod, &constraint, merged_selector(pod, &constraint))
        };
        defaults().map(with_selector).collect()
    }

    /// Reports whether the pod may have constraints that filter.
    fn may_filter(&self, attempt: &Attempt) -> bool {
        let own = attempt.spread_constraints();
        let all = if own.is_empty() {
            &self.args.default_constraints[..]
        } else {
            own
        };
        all.iter().any(|one| &*one.when_unsatisfiable == HARD)
    }
}

/// A constraint made ready: its selector merged, its counter named.
#[derive(Debug)]
struct Constraint {
    max_skew: i64,
    min_domains: usize,
    topology_key: Box<str>,
    honor_affinity: bool,
    honor_taints: bool,
    counter: CounterKey,
    /// An empty selector selects everything and, as upstream has it, counts nothing.
    counts_nothing: bool,
    selects_itself: bool,
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        "PodTopologySpread"
    }

    fn scope(&self) -> Scope {
        Scope::Cluster
    }

    fn requeue_on(&self) -> ClusterEvents {
        ClusterEvents::POD_PLACED
            .and(ClusterEvents::POD_GONE)
            .and(ClusterEvents::POD_LABEL)
            .and(ClusterEvents::NODE_ADD)
            .and(ClusterEvents::NODE_GONE)
            .and(ClusterEvents::NODE_LABEL)
            .and(ClusterEvents::NODE_TAINT)
            .and(ClusterEvents::POD_SELF)
    }

    fn may_help(&self, pod: &PodInfo, change: Change<'_>) -> bool {
        hints::may_help(self, pod, change)
    }

    fn node_names(&self, cycle: Cycle<'_>) -> Result<NodeNames, Rejection> {
        let count = cycle.attempt.spread_constraints().len();
        bounded("topology spread constraints", count, cycle.nodes).map(|()| None)
    }

    fn prepare(&self, attempt: &Attempt, nodes: &mut NodeTable) {
        let mut all = self.constraints(attempt, nodes, HARD);
        all.extend(self.constraints(attempt, nodes, SOFT));
        for constraint in &all {
            attempt.worked(nodes.prepare_topology(&constraint.topology_key));
        }
        let counters = all.into_iter().map(|one| one.counter).collect();
        attempt.worked(nodes.prepare_counters(counters).1);
        if self.may_filter(attempt) {
            let nodes = &*nodes;
            let hard = || self.constraints(attempt, nodes, HARD);
            attempt.summary(|| Spread::new(attempt.on(nodes), hard()));
        }
    }

    fn filter<'a>(&'a self, cycle: Cycle<'a>) -> Option<Box<dyn Filter + 'a>> {
        if !self.may_filter(cycle.attempt) {
            return None;
        }
        let hard = || self.constraints(cycle.attempt, cycle.nodes, HARD);
        let spread = cycle.attempt.summary(|| Spread::new(cycle, hard()));
        let spread = spread.filter(|spread| !spread.is_empty())?;
        cycle.attempt.worked(spread.steps);
        Some(Box::new(move |node: NodeId| spread.check(cycle.nodes, node)))
    }

    fn cluster_scores(&self, cycle: Cycle<'_>, feasible: &[NodeId]) -> Option<Vec<i64>> {
        let constraints = self.constraints(cycle.attempt, cycle.nodes, SOFT);
        if constraints.is_empty() {
            return None;
        }
        let require_all = !cycle.attempt.spread_constraints().is_empty() || !self.args.is_system;
        let keys = columns(cycle.nodes, &constraints);
        cycle.attempt.summed(2 * constraints.len(), cycle.nodes);
        let complete: Vec<bool> = (0..cycle.nodes.rows())
            .map(|node| !require_all || has_all_keys(&keys, node))
            .collect();
        let ignored: Vec<bool> = feasible.iter().map(|node| !complete[*node]).collect();
        let mut raw = vec![0.0; feasible.len()];
        let soft = Soft {
            cycle,
            feasible,
            ignored: &ignored,
            complete: &complete,
        };
        for (constraint, key) in constraints.iter().zip(&keys) {
            soft.add(&mut raw, constraint, key);
        }
        Some(normalized(&raw, &ignored))
    }
}

/// Everything the share of one soft constraint is computed from.
struct Soft<'a> {
    cycle: Cycle<'a>,
    feasible: &'a [NodeId],
    ignored: &'a [bool],
    /// By row: whether the node takes part as far as its keys go.
    complete: &'a [bool],
}

impl Soft<'_> {
    /// Adds the constraint's share to the raw scores (more is worse).
    fn add(&self, raw: &mut [f64], constraint: &Constraint, key: &Key<'_>) {
        let counts = matching_pods(constraint, self.cycle.nodes);
        let own = |node: NodeId| i64::from(counts.get(node));
        let by_host = &*constraint.topology_key == HOSTNAME;
        let sums = if by_host {
            Vec::new()
        } else {
            self.sums(constraint, key, own)
        };
        let size = if by_host {
            self.candidates().count()
        } else {
            sums.iter().flatten().count()
        };
        #[allow(clippy::cast_precision_loss, reason = "counts of nodes and pods")]
        let weight = ((size + 2) as f64).ln();
        for ((score, node), ignored) in raw.iter_mut().zip(self.feasible).zip(self.ignored) {
            let Some(value) = key.value(*node).filter(|_| !ignored) else {
                continue;
            };
            let count = if by_host {
                own(*node)
            } else {
                sums[value].unwrap_or(0)
            };
            #[allow(clippy::cast_precision_loss, reason = "counts of nodes and pods")]
            let share = count as f64 * weight + (constraint.max_skew - 1) as f64;
            *score += share;
        }
    }

    fn candidates(&self) -> impl Iterator<Item = NodeId> {
        self.feasible
            .iter()
            .zip(self.ignored)
            .filter(|(_, ignored)| !**ignored)
            .map(|(node, _)| *node)
    }

    /// Matching pods by domain of a candidate node; the last one is that of nodes without the label.
    fn sums(&self, constraint: &Constraint, key: &Key<'_>, own: impl Fn(NodeId) -> i64) -> Vec<Option<i64>> {
        let mut sums = vec![None; key.values() + 1];
        for node in self.candidates() {
            sums[key.value(node).unwrap_or(key.values())] = Some(0);
        }
        let nodes = self.cycle.nodes;
        for node in (0..nodes.rows()).filter(|node| nodes.present[*node]) {
            let counts = self.complete[node] && includes(self.cycle, constraint, node);
            if let Some(sum) = sums[key.value(node).unwrap_or(key.values())]
                .as_mut()
                .filter(|_| counts)
            {
                *sum += own(node);
            }
        }
        sums
    }
}

/// The fewest matching pods become 100; ignored nodes 0.
fn normalized(raw: &[f64], ignored: &[bool]) -> Vec<i64> {
    #[allow(clippy::cast_possible_truncation, reason = "sums of counts of pods")]
    let rounded: Vec<i64> = raw.iter().map(|score| score.round() as i64).collect();
    let counted = || {
        rounded
            .iter()
            .zip(ignored)
            .filter(|(_, ignored)| !**ignored)
            .map(|(score, _)| *score)
    };
    let (fewest, most) = (counted().min().unwrap_or(0), counted().max().unwrap_or(0));
    let one = |(score, ignored): (&i64, &bool)| match (ignored, most) {
        (true, _) => 0,
        (false, 0) => MAX_NODE_SCORE,
        (false, _) => MAX_NODE_SCORE * (most + fewest - score) / most,
    };
    rounded.iter().zip(ignored).map(one).collect()
}

/// The selector narrowed to pods that have the same values for `matchLabelKeys`.
fn merged_selector(pod: &PodInfo, constraint: &TopologySpreadConstraint) -> Option<LabelSelector> {
    let mut selector = constraint.label_selector.clone()?;
    for key in &constraint.match_label_keys {
        let Some(value) = pod.pod.metadata.labels.get(key) else {
            continue;
        };
        let requirement = Requirement {
            key: key.clone(),
            operator: "In".into(),
            values: vec![value.into()],
        };
        if !selector.match_expressions.contains(&requirement) {
            selector.match_expressions.push(requirement);
        }
    }
    Some(selector)
}

fn ready(
    pod: &PodInfo,
    constraint: &TopologySpreadConstraint,
    selector: Option<LabelSelector>,
) -> Constraint {
    let namespace = pod.pod.metadata.namespace.clone();
    let is =
        |policy: &Option<Box<str>>, default: bool| policy.as_deref().map_or(default, |text| text == "Honor");
    Constraint {
        max_skew: i64::from(constraint.max_skew),
        min_domains: usize::try_from(constraint.min_domains.unwrap_or(1)).unwrap_or(1),
        topology_key: constraint.topology_key.clone(),
        honor_affinity: is(&constraint.node_affinity_policy, true),
        honor_taints: is(&constraint.node_taints_policy, false),
        counts_nothing: selector
            .as_ref()
            .is_some_and(|one| *one == LabelSelector::default()),
        selects_itself: labels_match(selector.as_ref(), &pod.pod.metadata.labels),
        counter: CounterKey {
            selectors: vec![PodSelector {
                namespaces: Box::new([namespace]),
                namespace_selector: None,
                labels: selector,
            }],
            skip_deleting: true,
        },
    }
}

/// Matching pods by node.
fn matching_pods<'a>(constraint: &Constraint, nodes: &'a NodeTable) -> &'a SparseColumn {
    if constraint.counts_nothing {
        return &NOTHING;
    }
    nodes.counts().by_key(&constraint.counter)
}

/// The column of one constraint's topology key; `None` where no node has it.
#[derive(Debug, Clone, Copy)]
struct Key<'a>(Option<&'a Topology>);

impl<'a> Key<'a> {
    fn of(constraint: &Constraint, nodes: &'a NodeTable) -> Self {
        Self(nodes.topology(&constraint.topology_key))
    }

    /// Values are below it.
    fn values(self) -> usize {
        self.0.map_or(0, Topology::value_count)
    }

    fn value(self, node: NodeId) -> Option<usize> {
        self.0?.value(node)
    }
}

fn columns<'a>(nodes: &'a NodeTable, constraints: &[Constraint]) -> Vec<Key<'a>> {
    constraints.iter().map(|one| Key::of(one, nodes)).collect()
}

fn has_all_keys(keys: &[Key<'_>], node: NodeId) -> bool {
    keys.iter().all(|key| key.value(node).is_some())
}

/// Reports whether the node's domain takes part for the cycle's pod.
fn includes(cycle: Cycle<'_>, constraint: &Constraint, node: NodeId) -> bool {
    let tolerated = || {
        let mut forbidding = cycle.nodes.taints[node]
            .iter()
            .filter(|taint| taint.forbids_scheduling());
        forbidding.all(|taint| cycle.attempt.tolerates(taint))
    };
    (!constraint.honor_affinity || cycle.attempt.admits(cycle.nodes, node))
        && (!constraint.honor_taints || tolerated())
}
