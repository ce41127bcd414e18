//! NUMA nodes that a resource may come from: upstream's `TopologyHint` and `bitmask`. Pure.

use std::collections::BTreeMap;

/// NUMA nodes of a machine, at most 64, by number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeMask(u64);

/// NUMA nodes of a mask; one with a higher number is in none.
pub(crate) const MASK_NODES_MAX: u32 = 64;

impl NodeMask {
    pub(crate) fn contains(self, node: u32) -> bool {
        node < MASK_NODES_MAX && self.0 & (1 << node) != 0
    }

    pub(crate) fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Numbers, lowest first.
    pub(crate) fn nodes(self) -> impl Iterator<Item = u32> {
        (0..MASK_NODES_MAX).filter(move |node| self.contains(*node))
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Reports whether it has fewer nodes, or as many with lower numbers.
    pub(crate) fn is_narrower(self, other: Self) -> bool {
        match self.count() == other.count() {
            true => self.is_lower(other),
            false => self.count() < other.count(),
        }
    }

    /// Reports whether its nodes have lower numbers.
    pub(crate) fn is_lower(self, other: Self) -> bool {
        self.0 < other.0
    }

    /// All masks that are not empty of these nodes, smaller ones first: upstream's `IterateBitMasks`.
    pub(crate) fn all_of(nodes: &[u32]) -> impl Iterator<Item = Self> {
        let nodes: Vec<u32> = nodes
            .iter()
            .copied()
            .filter(|node| *node < MASK_NODES_MAX)
            .collect();
        (1..=nodes.len()).flat_map(move |size| combinations(&nodes, size))
    }
}

impl FromIterator<u32> for NodeMask {
    fn from_iter<I: IntoIterator<Item = u32>>(nodes: I) -> Self {
        let known = nodes.into_iter().filter(|node| *node < MASK_NODES_MAX);
        Self(known.fold(0, |mask, node| mask | 1 << node))
    }
}

fn combinations(nodes: &[u32], size: usize) -> Vec<NodeMask> {
    let Some((first, rest)) = nodes.split_first() else {
        return match size {
            0 => vec![NodeMask::default()],
            _ => Vec::new(),
        };
    };
    if size == 0 {
        return vec![NodeMask::default()];
    }
    let with = combinations(rest, size - 1).into_iter();
    let mut all: Vec<NodeMask> = with.map(|mask| NodeMask(mask.0 | 1 << first)).collect();
    all.extend(combinations(rest, size));
    all
}

/// A possible place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Hint {
    /// The NUMA nodes; `None` is any.
    pub(crate) nodes: Option<NodeMask>,
    /// No smaller set of nodes could do.
    pub(crate) preferred: bool,
}

/// Possible places by resource: `None` where any will do, and empty where there is none.
pub(crate) type Hints = BTreeMap<String, Option<Vec<Hint>>>;

/// Marks the hints with the least number of nodes.
pub(crate) fn preferring(masks: Vec<NodeMask>, fewest: usize) -> Vec<Hint> {
    let hints = masks.into_iter().map(|mask| Hint {
        nodes: Some(mask),
        preferred: mask.count() == fewest,
    });
    hints.collect()
}
