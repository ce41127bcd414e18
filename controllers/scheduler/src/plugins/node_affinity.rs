//! `nodeSelector` and node affinity, that of the pod and that which its profile adds.

use crate::config::args::NodeAffinityArgs;
use crate::framework::{
    Change, ClusterEvents, Cycle, Filter, NodeNames, NodeState, Normalize, Plugin, Rejection, Score,
};
use crate::node_terms::NodeTermIndex;
use crate::nodes::{NodeId, NodeTable};
use crate::object::{Labels, NodeSelectorTerm, PreferredSchedulingTerm};
use crate::pod::PodInfo;
use std::collections::BTreeSet;

#[derive(Debug)]
pub(super) struct NodeAffinity {
    added: Added,
}

/// The affinity that the profile adds.
#[derive(Debug)]
struct Added {
    required: Option<(Vec<NodeSelectorTerm>, NodeTermIndex)>,
    preferred: (Vec<PreferredSchedulingTerm>, NodeTermIndex),
}

impl NodeAffinity {
    pub(super) fn new(args: &NodeAffinityArgs) -> Self {
        let own = args.added_affinity.clone();
        let required = own.required.map(|own| own.node_selector_terms);
        let filed = |terms: Vec<NodeSelectorTerm>| {
            let index = NodeTermIndex::of(terms.iter());
            (terms, index)
        };
        let index = NodeTermIndex::of(own.preferred.iter().map(|one| &one.preference));
        Self {
            added: Added {
                required: required.map(filed),
                preferred: (own.preferred, index),
            },
        }
    }
}

impl Added {
    fn admits(&self, name: &str, labels: &Labels) -> bool {
        self.required.as_ref().is_none_or(|(terms, index)| {
            let mut candidates = index.candidates(name, labels);
            candidates.any(|id| index.matches(id, &terms[id], name, labels))
        })
    }

    fn preference(&self, nodes: &NodeTable, node: NodeId) -> i64 {
        let (name, labels) = (&nodes.names[node], &nodes.labels[node]);
        let (terms, index) = &self.preferred;
        let candidates = index.candidates(name, labels);
        let matching = candidates.filter(|id| index.matches(*id, &terms[*id].preference, name, labels));
        matching.map(|id| i64::from(terms[id].weight)).sum()
    }
}

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        "NodeAffinity"
    }

    fn requeue_on(&self) -> ClusterEvents {
        ClusterEvents::NODE_ADD
            .and(ClusterEvents::NODE_LABEL)
            .and(ClusterEvents::POD_SELF)
    }

    /// A node helps that is admitted and was not.
    fn may_help(&self, pod: &PodInfo, change: Change<'_>) -> bool {
        let (before, after) = match change {
            Change::Own(before) => {
                let (own, before) = (&pod.shape, &before.shape);
                return own.node_selector != before.node_selector
                    || own.node_affinity != before.node_affinity;
            }
            Change::Node {
                before,
                after: Some(after),
                ..
            } => (before, after),
            _ => return true,
        };
        let added = |node: &NodeState| self.added.admits(&node.name, &node.labels);
        let admitted = |node: &NodeState| Some(added(node) && pod.shape.admits_if_short(node)?);
        added(after) && admitted(after) != Some(false) && before.and_then(admitted) != Some(true)
    }

    /// Returns the nodes that the required terms name, where every term names some: only those need to be tried (the
    /// pods of a DaemonSet do this).
    fn node_names(&self, cycle: Cycle<'_>) -> Result<NodeNames, Rejection> {
        let Some(required) = &cycle.attempt.node_affinity().required else {
            return Ok(None);
        };
        let mut all = BTreeSet::new();
        if required.node_selector_terms.is_empty() {
            return Ok(None);
        }
        for term in &required.node_selector_terms {
            match names_of(term) {
                Some(names) => all.extend(names),
                None => return Ok(None),
            }
        }
        if all.is_empty() {
            return Err(Rejection::unresolvable("pod affinity terms conflict"));
        }
        Ok(Some(all))
    }

    fn filter<'a>(&'a self, cycle: Cycle<'a>) -> Option<Box<dyn Filter + 'a>> {
        let attempt = cycle.attempt;
        let has_own = !cycle.pod.shape.node_selector.is_empty() || attempt.node_affinity().required.is_some();
        if !has_own && self.added.required.is_none() {
            return None;
        }
        Some(Box::new(move |node: NodeId| {
            if !self
                .added
                .admits(&cycle.nodes.names[node], &cycle.nodes.labels[node])
            {
                let reason = "node(s) didn't match scheduler-enforced node affinity";
                return Err(Rejection::unresolvable(reason));
            }
            if attempt.admits(cycle.nodes, node) {
                return Ok(());
            }
            Err(Rejection::unresolvable(
                "node(s) didn't match Pod's node affinity/selector",
            ))
        }))
    }

    fn score<'a>(&'a self, cycle: Cycle<'a>) -> Option<Box<dyn Score + 'a>> {
        let preferred = &cycle.attempt.node_affinity().preferred;
        let adds = !self.added.preferred.0.is_empty();
        if preferred.is_empty() && !adds {
            return None;
        }
        Some(Box::new(move |node: NodeId| {
            let own = match preferred.is_empty() {
                true => 0,
                false => cycle.attempt.preference(preferred, cycle.nodes, node),
            };
            own + self.added.preference(cycle.nodes, node)
        }))
    }

    fn normalize(&self) -> Normalize {
        Normalize::Highest
    }
}

/// The nodes a term names, when it names any.
fn names_of(term: &NodeSelectorTerm) -> Option<BTreeSet<Box<str>>> {
    let mut fields = term
        .match_fields
        .iter()
        .filter(|one| &*one.key == "metadata.name" && &*one.operator == "In");
    let first: BTreeSet<Box<str>> = fields.next()?.values.iter().cloned().collect();
    Some(fields.fold(first, |names, one| {
        names
            .into_iter()
            .filter(|name| one.values.contains(name))
            .collect()
    }))
}
