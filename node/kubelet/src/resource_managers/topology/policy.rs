//! Policies: how well the places of a container's resources have to match. Upstream's `policy`. Pure.

use super::merging::{Merger, Nodes};
use super::options::TopologyOptions;
use crate::resource_managers::config::{TopologyManagerPolicy, TopologyManagerScope};
use crate::resource_managers::hints::{Hint, Hints, MASK_NODES_MAX};

/// A policy on a machine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TopologyPolicy {
    pub(crate) policy: TopologyManagerPolicy,
    pub(crate) scope: TopologyManagerScope,
    pub(crate) nodes: Nodes,
}

impl TopologyPolicy {
    /// The policy on a machine with these NUMA nodes.
    ///
    /// # Errors
    /// Upstream's sentence: the machine has too many of them.
    pub(crate) fn new(
        policy: TopologyManagerPolicy,
        scope: TopologyManagerScope,
        options: TopologyOptions,
        nodes: Nodes,
    ) -> Result<Self, String> {
        let is_out = nodes.numbers.iter().any(|node| *node >= MASK_NODES_MAX);
        if is_out || nodes.numbers.len() > options.nodes_max {
            return Err(format!(
                "unsupported on machines with more than {} NUMA Nodes",
                options.nodes_max
            ));
        }
        Ok(Self { policy, scope, nodes })
    }

    /// Returns the best place for resources with these hints, and whether it is good enough.
    pub(crate) fn merge(&self, providers: &[Hints]) -> (Hint, bool) {
        let mut hints = listed(providers);
        let is_single = self.policy == TopologyManagerPolicy::SingleNumaNode;
        if is_single {
            hints.iter_mut().for_each(|own| own.retain(is_of_one_node));
        }
        let merger = Merger {
            nodes: &self.nodes,
            by_distance: self.nodes.prefer_closest && !is_single,
        };
        let mut best = merger.merge(&hints);
        if is_single && best.nodes == Some(self.nodes.all()) {
            best.nodes = None;
        }
        let is_admitted = best.preferred || self.policy == TopologyManagerPolicy::BestEffort;
        (best, is_admitted)
    }

    /// Reports whether a pod that it admits is aligned with one NUMA node.
    pub(crate) fn guarantees(&self) -> bool {
        self.policy == TopologyManagerPolicy::SingleNumaNode
    }
}

fn is_of_one_node(hint: &Hint) -> bool {
    hint.preferred && hint.nodes.is_none_or(|nodes| nodes.count() == 1)
}

/// The hints of each resource: a provider that says nothing has no preference.
fn listed(providers: &[Hints]) -> Vec<Vec<Hint>> {
    let hint = |preferred| {
        vec![Hint {
            nodes: None,
            preferred,
        }]
    };
    let mut all = Vec::new();
    for hints in providers {
        if hints.is_empty() {
            all.push(hint(true));
        }
        all.extend(hints.values().map(|own| match own {
            None => hint(true),
            Some(own) if own.is_empty() => hint(false),
            Some(own) => own.clone(),
        }));
    }
    all
}
