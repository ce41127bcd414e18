//! Volumes that a claim may have, best first, and of them the one that a node reaches.
//!
//! As upstream's `FindMatchingVolume`: a volume that names the claim is its only choice; of others the smallest.

use super::objects::{Claim, Volume};
use crate::attempt::Attempt;
use crate::node_terms::{NodeTermIndex, items_of, steps_of};
use crate::nodes::{NodeId, NodeTable};
use crate::object::NodeSelectorTerm;
use crate::selector::{labels_match, node_selector_matches};
use machinery_meta::ObjectKey;
use std::sync::Arc;

/// Choices of one claim.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one for each claim of the pod that is tried"
)]
pub(crate) enum Candidates {
    /// It names the claim.
    Own(Arc<Volume>),
    /// In order of preference.
    Any(Sorted),
}

/// Volumes, filed under the labels that they want of a node.
#[derive(Debug)]
pub(crate) struct Sorted {
    volumes: Vec<Arc<Volume>>,
    index: NodeTermIndex,
    /// Volume and place of each term.
    terms: Vec<(usize, usize)>,
    /// The volumes that any node reaches.
    anywhere: Vec<usize>,
}

impl Candidates {
    /// The volumes of the claim's class that suit it.
    pub(crate) fn of<'a>(
        attempt: &Attempt,
        key: &ObjectKey,
        claim: &Claim,
        volumes: impl Iterator<Item = &'a Arc<Volume>>,
    ) -> Self {
        let selector = claim.selector.get();
        let mut suiting = Vec::new();
        for volume in volumes {
            attempt.worked(1);
            let is_own = match &volume.claim {
                Some(own) if !own.means(key, claim) => continue,
                own => own.is_some(),
            };
            if !is_alike(claim, volume) {
                continue;
            }
            if is_own {
                return Self::Own(Arc::clone(volume));
            }
            let selected = || {
                selector
                    .as_ref()
                    .as_ref()
                    .is_none_or(|own| labels_match(Some(own), &volume.labels))
            };
            if volume.available && volume.access_modes.contain(claim.access_modes) && selected() {
                suiting.push(Arc::clone(volume));
            }
        }
        suiting.sort_by(|left, right| (left.capacity, &left.name).cmp(&(right.capacity, &right.name)));
        Self::Any(Sorted::of(attempt, suiting))
    }

    /// The best of them that the node reaches and that is not taken.
    pub(crate) fn best(
        &self,
        attempt: &Attempt,
        nodes: &NodeTable,
        node: NodeId,
        taken: &[Arc<Volume>],
    ) -> Option<Arc<Volume>> {
        let free = |volume: &Arc<Volume>| !taken.iter().any(|own| own.name == volume.name);
        match self {
            Self::Own(volume) => Some(volume)
                .filter(|volume| free(volume) && reaches(volume, nodes, node))
                .cloned(),
            Self::Any(sorted) => sorted.best(attempt, nodes, node, free),
        }
    }
}

impl Sorted {
    fn of(attempt: &Attempt, volumes: Vec<Arc<Volume>>) -> Self {
        let mut terms = Vec::new();
        let mut anywhere = Vec::new();
        for (at, volume) in volumes.iter().enumerate() {
            match &volume.nodes {
                Some(nodes) => terms.extend((0..nodes.node_selector_terms.len()).map(|place| (at, place))),
                None => anywhere.push(at),
            }
        }
        let filed = terms.iter().map(|(at, place)| term(&volumes, *at, *place));
        let index = NodeTermIndex::of(filed.clone());
        attempt.worked(filed.map(items_of).sum());
        Self {
            volumes,
            index,
            terms,
            anywhere,
        }
    }

    fn best(
        &self,
        attempt: &Attempt,
        nodes: &NodeTable,
        node: NodeId,
        free: impl Fn(&Arc<Volume>) -> bool,
    ) -> Option<Arc<Volume>> {
        let (name, labels) = (&nodes.names[node], &nodes.labels[node]);
        let mut steps = 1;
        let reached = self.index.candidates(name, labels).filter(|id| {
            let (at, place) = self.terms[*id];
            let term = term(&self.volumes, at, place);
            steps += steps_of(term);
            self.index.matches(*id, term, name, labels)
        });
        let reached = reached.map(|id| self.terms[id].0);
        let best = reached.filter(|at| free(&self.volumes[*at])).min();
        let anywhere = self.anywhere.iter().copied();
        let other = anywhere
            .take_while(|at| best.is_none_or(|best| *at < best))
            .find(|at| free(&self.volumes[*at]));
        attempt.worked(steps);
        other.or(best).map(|at| Arc::clone(&self.volumes[at]))
    }
}

fn term(volumes: &[Arc<Volume>], at: usize, place: usize) -> &NodeSelectorTerm {
    let nodes = volumes[at].nodes.as_ref();
    &nodes
        .expect("only volumes with terms are filed")
        .node_selector_terms[place]
}

fn is_alike(claim: &Claim, volume: &Volume) -> bool {
    claim.request.is_none_or(|request| volume.capacity >= request)
        && volume.is_block == claim.is_block
        && volume.attributes_class == claim.attributes_class
        && !volume.deleting
}

/// Reports whether the node is among those of the volume's affinity.
pub(crate) fn reaches(volume: &Volume, nodes: &NodeTable, node: NodeId) -> bool {
    let affinity = volume.nodes.as_ref();
    affinity.is_none_or(|own| node_selector_matches(own, &nodes.names[node], &nodes.labels[node]))
}
