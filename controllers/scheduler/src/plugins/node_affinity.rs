//! `nodeSelector` and node affinity.

use crate::framework::{ClusterEvents, Cycle, Filter, NodeNames, Normalize, Plugin, Rejection, Score};
use crate::nodes::NodeId;
use crate::object::NodeSelectorTerm;
use std::collections::BTreeSet;

#[derive(Debug)]
pub(super) struct NodeAffinity;

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        "NodeAffinity"
    }

    fn requeue_on(&self) -> ClusterEvents {
        ClusterEvents::NODE_ADD
            .and(ClusterEvents::NODE_LABEL)
            .and(ClusterEvents::POD_SELF)
    }

    /// When every required term names nodes, only those need to be looked at (the pods of a DaemonSet do this).
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

    fn filter<'a>(&self, cycle: Cycle<'a>) -> Option<Box<dyn Filter + 'a>> {
        let attempt = cycle.attempt;
        if cycle.pod.shape.node_selector.is_empty() && attempt.node_affinity().required.is_none() {
            return None;
        }
        Some(Box::new(move |node: NodeId| {
            if attempt.admits(cycle.nodes, node) {
                return Ok(());
            }
            Err(Rejection::unresolvable(
                "node(s) didn't match Pod's node affinity/selector",
            ))
        }))
    }

    fn score<'a>(&self, cycle: Cycle<'a>) -> Option<Box<dyn Score + 'a>> {
        let preferred = &cycle.attempt.node_affinity().preferred;
        if preferred.is_empty() {
            return None;
        }
        Some(Box::new(move |node: NodeId| {
            cycle.attempt.preference(preferred, cycle.nodes, node)
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
