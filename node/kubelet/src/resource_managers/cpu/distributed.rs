//! Choice of processors that are spread evenly over NUMA nodes: the option `distribute-cpus-across-numa`. Pure.

use std::collections::BTreeMap;

use super::assignment::{Choice, take_packed, too_few};
use super::set::CpuSet;
use super::topology::{CpuTopology, Level};

/// The search looks at all sets of NUMA nodes, and at all subsets of each; more nodes are refused at the start.
pub(crate) const NODES_MAX: usize = 8;

/// Chooses so many of the free processors, evenly of as few NUMA nodes as that takes, in groups: those of a core, or single
/// ones. They are packed where it does not work out.
///
/// # Errors
/// Upstream's sentence: there are fewer.
pub(crate) fn take_distributed(
    topology: &CpuTopology,
    free: &CpuSet,
    count: usize,
    group: usize,
) -> Result<CpuSet, String> {
    let group = group.max(1);
    if !count.is_multiple_of(group) {
        return take_packed(topology, free, count, false);
    }
    let mut choice = Choice::new(topology, free, count);
    if choice.needed == 0 {
        return Ok(choice.taken);
    }
    if choice.needed > choice.free.len() {
        return Err(too_few(count, free.len()));
    }
    let search = Search {
        topology,
        free: choice
            .ordered(Level::Node)
            .into_iter()
            .map(|node| (node, choice.free.count_in(Level::Node, node)))
            .collect(),
        count,
        group,
    };
    let Some(shares) = search.best() else {
        return take_packed(topology, free, count, false);
    };
    for (node, share) in shares {
        let own = choice.free.cpus_in(Level::Node, node);
        choice.take(&take_packed(topology, &own, share, false)?);
    }
    match choice.taken.len() == count {
        true => Ok(choice.taken),
        false => Err("accounting error, not enough CPUs allocated".to_owned()),
    }
}

/// Search for the NUMA nodes of which processors are taken.
struct Search<'a> {
    topology: &'a CpuTopology,
    /// NUMA nodes in the order of the search, with the number of their free processors.
    free: Vec<(u32, usize)>,
    count: usize,
    group: usize,
}

/// A set of NUMA nodes, and those of it that give what an even share leaves.
struct Found {
    balance: f64,
    nodes: Vec<u32>,
    remainder: Vec<u32>,
}

type Free = BTreeMap<u32, usize>;

impl Search<'_> {
    fn free(&self) -> Free {
        self.free.iter().copied().collect()
    }

    /// Processors to take, step by step; `None` where no set of nodes works out.
    fn best(&self) -> Option<Vec<(u32, usize)>> {
        let (fewest, most) = self.range();
        let found = (fewest..=most).find_map(|size| self.best_of(size))?;
        let free = self.free();
        let share = self.even(found.nodes.len());
        let mut shares: Vec<(u32, usize)> = found.nodes.iter().map(|node| (*node, share)).collect();
        let mut left: Free = found
            .nodes
            .iter()
            .map(|node| (*node, free[node] - share))
            .collect();
        let remainder = self.count - share * found.nodes.len();
        let given = deal(&mut left, &found.remainder, remainder, self.group)?;
        shares.extend(given.into_iter().map(|node| (node, self.group)));
        Some(shares)
    }

    fn even(&self, nodes: usize) -> usize {
        self.count / nodes / self.group * self.group
    }

    /// Least and largest number of NUMA nodes that can satisfy the request.
    fn range(&self) -> (usize, usize) {
        let nodes = self.topology.nodes.max(1);
        let groups = self.topology.places.len().div_ceil(self.group);
        let per_node = groups.div_ceil(nodes).max(1);
        let needed = self.count.div_ceil(self.group);
        (needed.div_ceil(per_node), needed.min(self.free.len()))
    }

    fn best_of(&self, size: usize) -> Option<Found> {
        let nodes: Vec<u32> = self.free.iter().map(|(node, _)| *node).collect();
        let mut best: Option<Found> = None;
        for combination in combinations(&nodes, size) {
            if best.as_ref().is_some_and(|best| best.balance <= 0.0) {
                break;
            }
            let Some(found) = self.look_at(combination) else {
                continue;
            };
            if best.as_ref().is_none_or(|best| found.balance < best.balance) {
                best = Some(found);
            }
        }
        best
    }

    /// Evenness of the machine after a set of nodes has given the processors; `None` where it does not have enough.
    fn look_at(&self, nodes: Vec<u32>) -> Option<Found> {
        let free = self.free();
        let groups: usize = nodes.iter().map(|node| free[node] / self.group).sum();
        if groups * self.group < self.count {
            return None;
        }
        let share = self.even(nodes.len());
        if nodes.iter().any(|node| free[node] < share) {
            return None;
        }
        let mut left = free;
        for node in &nodes {
            *left.entry(*node).or_default() -= share;
        }
        let remainder = self.count - share * nodes.len();
        let (balance, remainder) = self.best_remainder(&left, &nodes, remainder)?;
        Some(Found {
            balance,
            nodes,
            remainder,
        })
    }

    /// The nodes that give the rest so that the free processors of all are as even as possible.
    fn best_remainder(&self, left: &Free, nodes: &[u32], remainder: usize) -> Option<(f64, Vec<u32>)> {
        if remainder == 0 {
            return Some((deviation(left), Vec::new()));
        }
        let able = nodes.iter().copied().filter(|node| left[node] >= self.group);
        let able: Vec<u32> = able.collect();
        let mut best: Option<(f64, Vec<u32>)> = None;
        for subset in (1..=able.len()).rev().flat_map(|size| combinations(&able, size)) {
            let mut after = left.clone();
            if deal(&mut after, &subset, remainder, self.group).is_none() {
                continue;
            }
            let balance = deviation(&after);
            if best.as_ref().is_none_or(|(known, _)| balance < *known) {
                best = Some((balance, subset));
            }
        }
        best
    }
}

/// Takes groups of nodes in turn; `None` where they have not enough.
fn deal(left: &mut Free, nodes: &[u32], mut remainder: usize, group: usize) -> Option<Vec<u32>> {
    let mut given = Vec::new();
    while remainder > 0 {
        let before = remainder;
        for node in nodes {
            let own = left.entry(*node).or_default();
            if remainder == 0 {
                break;
            }
            if *own >= group {
                *own -= group;
                remainder = remainder.saturating_sub(group);
                given.push(*node);
            }
        }
        if remainder == before {
            return None;
        }
    }
    Some(given)
}

/// Standard deviation, to three places as upstream's.
fn deviation(values: &Free) -> f64 {
    let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
    let values: Vec<f64> = values
        .values()
        .map(|value| f64::from(u32::try_from(*value).unwrap_or(u32::MAX)))
        .collect();
    let count = f64::from(u32::try_from(values.len().max(1)).unwrap_or(u32::MAX));
    let mean = rounded(values.iter().sum::<f64>() / count);
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    rounded((squares / count).sqrt())
}

/// All sets of so many of these, in the order that they have.
fn combinations(of: &[u32], size: usize) -> Vec<Vec<u32>> {
    if size == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (at, first) in of.iter().enumerate() {
        for rest in combinations(&of[at + 1..], size - 1) {
            all.push(std::iter::once(*first).chain(rest).collect());
        }
    }
    all
}
