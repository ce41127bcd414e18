//! The NUMA nodes that suit several resources best: upstream's `HintMerger` and `NUMAInfo`. Pure.
//!
//! Of each resource one hint is taken, in all combinations; what the nodes of all have in common is a candidate. Equal
//! candidates are followed once, so that the work is bounded by the number of sets of nodes and not by that of combinations.

use std::collections::{BTreeMap, BTreeSet};

use crate::resource_managers::hints::{Hint, NodeMask};

/// The NUMA nodes of a machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Nodes {
    /// Their numbers, lowest first.
    pub(crate) numbers: Vec<u32>,
    /// Distances of a node to the others, in the order of their numbers.
    pub(crate) distances: BTreeMap<u32, Vec<u64>>,
    /// The closest nodes are better than those with the lowest numbers.
    pub(crate) prefer_closest: bool,
}

impl Nodes {
    pub(crate) fn all(&self) -> NodeMask {
        self.numbers.iter().copied().collect()
    }

    /// Sum of the distances within a set; sets with as many nodes are compared by it.
    fn distance(&self, mask: NodeMask) -> u64 {
        let between = |one: u32, two: u32| {
            let own = self.distances.get(&one);
            let at = usize::try_from(two).unwrap_or(usize::MAX);
            own.and_then(|own| own.get(at)).copied().unwrap_or(0)
        };
        let pairs = mask
            .nodes()
            .flat_map(|one| mask.nodes().map(move |two| (one, two)));
        pairs.fold(0, |sum: u64, (one, two)| sum.saturating_add(between(one, two)))
    }
}

/// Finds the best nodes.
pub(super) struct Merger<'a> {
    pub(super) nodes: &'a Nodes,
    pub(super) by_distance: bool,
}

/// Nodes that the hints of the resources so far have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Common {
    nodes: NodeMask,
    /// All are preferred.
    preferred: bool,
    /// A resource has named nodes.
    is_named: bool,
}

impl Merger<'_> {
    /// Returns the best of all combinations; of hints that have nothing in common, all nodes.
    pub(super) fn merge(&self, hints: &[Vec<Hint>]) -> Hint {
        let counted = best_count(hints);
        let mut best: Option<Hint> = None;
        for candidate in self.candidates(hints) {
            best = Some(match best {
                None => candidate,
                Some(best) => self.better(best, candidate, counted),
            });
        }
        best.unwrap_or(Hint {
            nodes: Some(self.nodes.all()),
            preferred: false,
        })
    }

    /// Everything that one hint of each resource has in common, in upstream's order but for what comes again.
    fn candidates(&self, hints: &[Vec<Hint>]) -> Vec<Hint> {
        let mut all = vec![Common {
            nodes: self.nodes.all(),
            preferred: true,
            is_named: false,
        }];
        for own in hints {
            let mut seen = BTreeSet::new();
            let combined = all
                .iter()
                .flat_map(|common| own.iter().map(move |hint| common.with(hint)));
            let combined: Vec<Common> = combined.filter(|common| seen.insert(*common)).collect();
            all = combined;
        }
        let found = all.into_iter().filter(|common| common.nodes.count() > 0);
        found
            .map(|common| Hint {
                nodes: Some(common.nodes),
                preferred: common.preferred,
            })
            .collect()
    }

    fn better(&self, current: Hint, candidate: Hint, counted: usize) -> Hint {
        if current.preferred != candidate.preferred {
            return if current.preferred { current } else { candidate };
        }
        let (own, other) = (count(&current), count(&candidate));
        let fitter = || self.fitter(current, candidate);
        if current.preferred || own > counted {
            return fitter();
        }
        // Neither is preferred: as many nodes as the resource needs that needs most, or nearly.
        match (own == counted, other == counted) {
            (true, true) => fitter(),
            (true, false) => current,
            (false, true) => candidate,
            (false, false) if other > counted => current,
            (false, false) => match other.cmp(&own) {
                std::cmp::Ordering::Greater => candidate,
                std::cmp::Ordering::Less => current,
                std::cmp::Ordering::Equal => fitter(),
            },
        }
    }

    fn fitter(&self, current: Hint, candidate: Hint) -> Hint {
        let (own, other) = (
            current.nodes.unwrap_or_default(),
            candidate.nodes.unwrap_or_default(),
        );
        let is_better = match self.by_distance && own.count() == other.count() {
            true => {
                let (near, far) = (self.nodes.distance(other), self.nodes.distance(own));
                near < far || (near == far && other.is_lower(own))
            }
            false => other.is_narrower(own),
        };
        if is_better { candidate } else { current }
    }
}

impl Common {
    fn with(&self, hint: &Hint) -> Self {
        let mut own = *self;
        own.preferred &= hint.preferred;
        if let Some(nodes) = hint.nodes {
            // As long as all are preferred they have named the same nodes.
            own.preferred &= !own.is_named || own.nodes == nodes;
            own.nodes = own.nodes.and(nodes);
            own.is_named = true;
        }
        own
    }
}

fn count(hint: &Hint) -> usize {
    hint.nodes.unwrap_or_default().count()
}

/// Nodes of the resource that needs most of them at least.
fn best_count(hints: &[Vec<Hint>]) -> usize {
    let fewest = hints.iter().filter_map(|own| {
        let counts = own.iter().filter_map(|hint| hint.nodes);
        counts.map(NodeMask::count).min()
    });
    fewest.max().unwrap_or(0)
}
