//! Changes of pods and nodes that change the skew of a pod's domains, or which nodes are among them.

use super::{Constraint, HARD, PodTopologySpread};
use crate::framework::{Change, NodeState};
use crate::nodes::NodeTable;
use crate::object::TopologySpreadConstraint;
use crate::pod::PodInfo;
use crate::selector::labels_match;
use std::borrow::Cow;

pub(super) fn may_help(plugin: &PodTopologySpread, pod: &PodInfo, change: Change<'_>) -> bool {
    let Some(own) = short_constraints(pod) else {
        return true;
    };
    let hard = |nodes: &NodeTable| plugin.constraints_of(pod, &own, nodes, HARD);
    match change {
        Change::Own(before) => own_may_help(pod, &own, before),
        Change::Placed { before, after, nodes } => pods_may_help(pod, &hard(nodes), before, after),
        Change::Node { before, after, nodes } => node_may_help(pod, &hard(nodes), before, after),
    }
}

/// The pod's own constraints, where they are compared outside of attempts.
fn short_constraints(pod: &PodInfo) -> Option<Cow<'_, Vec<TopologySpreadConstraint>>> {
    let own = &pod.pod.spec.topology_spread_constraints;
    own.json_bytes().is_none().then(|| own.get())
}

/// The pod's labels choose the pods that it is counted with, and whether it counts itself.
fn own_may_help(pod: &PodInfo, own: &[TopologySpreadConstraint], before: &PodInfo) -> bool {
    let (labels, former) = (&pod.pod.metadata.labels, &before.pod.metadata.labels);
    let differs = |one: &TopologySpreadConstraint| {
        let selects = |labels| labels_match(one.label_selector.as_ref(), labels);
        let mut keys = one.match_label_keys.iter();
        selects(labels) != selects(former) || keys.any(|key| labels.get(key) != former.get(key))
    };
    let constraints = |pod: &PodInfo| pod.pod.spec.topology_spread_constraints.clone();
    constraints(pod) != constraints(before)
        || match own {
            // Those of the profile have the selectors of the pod's owners.
            [] => labels != former,
            own => own.iter().any(differs),
        }
}

fn pods_may_help(
    pod: &PodInfo,
    constraints: &[Constraint],
    before: Option<&PodInfo>,
    after: Option<&PodInfo>,
) -> bool {
    let selects = |one: &Constraint, other: Option<&PodInfo>| {
        let own = other.filter(|other| other.key.namespace == pod.key.namespace);
        let selectors = &one.counter.selectors;
        own.is_some_and(|own| {
            let labels = &own.pod.metadata.labels;
            let mut all = selectors.iter();
            !one.counts_nothing && all.all(|own| labels_match(own.labels.as_ref(), labels))
        })
    };
    let mut all = constraints.iter();
    constraints.is_empty() || all.any(|one| selects(one, before) != selects(one, after))
}

/// A node that is in a domain of every constraint, or was, may change the fewest pods of a domain.
fn node_may_help(
    pod: &PodInfo,
    constraints: &[Constraint],
    before: Option<&NodeState>,
    after: Option<&NodeState>,
) -> bool {
    let is_in_all = |node: &NodeState| {
        let mut all = constraints.iter();
        all.all(|one| node.labels.get(&one.topology_key).is_some())
    };
    if constraints.is_empty() {
        return true;
    }
    let (was, is) = (before.is_some_and(is_in_all), after.is_some_and(is_in_all));
    let (Some(before), Some(after)) = (before, after) else {
        return was || is;
    };
    let moved = |one: &Constraint| {
        let domain = |node: &'_ NodeState| node.labels.get(&one.topology_key).map(str::to_owned);
        domain(before) != domain(after) || counts_otherwise(pod, one, before, after)
    };
    was != is || is && (before.taints != after.taints || constraints.iter().any(moved))
}

/// Reports whether the pod's node affinity has the node counted where it was not, or the other way round.
fn counts_otherwise(pod: &PodInfo, one: &Constraint, before: &NodeState, after: &NodeState) -> bool {
    let (was, is) = (
        pod.shape.admits_if_short(before),
        pod.shape.admits_if_short(after),
    );
    one.honor_affinity && (was != is || is.is_none())
}
