//! The choice of a node by a policy.

use super::Policy;
use crate::nodes::{NodeId, NodeTable};
use crate::pod::Shape;
use std::time::Duration;

/// Facts by which a node is chosen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nodes<'a> {
    pub(crate) table: &'a NodeTable,
    pub(crate) shape: &'a Shape,
    /// Nodes that the pod fits, at least one, in order.
    pub(crate) feasible: &'a [NodeId],
    pub(crate) now: Duration,
}

/// A policy, and what it remembers.
#[derive(Debug, Default)]
pub(crate) struct Ranking {
    policy: Policy,
    /// The node that was chosen last, where they take turns.
    last: Box<str>,
}

impl Ranking {
    pub(crate) fn policy(&self) -> Policy {
        self.policy
    }

    pub(crate) fn set(&mut self, policy: Policy) {
        if self.policy != policy {
            *self = Self {
                policy,
                last: Box::default(),
            };
        }
    }

    /// The best nodes, in order; `None` leaves all of them to the scores.
    pub(crate) fn best(&mut self, nodes: Nodes<'_>, random: u64) -> Option<Vec<NodeId>> {
        match self.policy {
            Policy::Default => None,
            Policy::Random => {
                let count = nodes.feasible.len().max(1) as u64;
                let at = usize::try_from(random % count).unwrap_or(0);
                Some(vec![nodes.feasible[at]])
            }
            Policy::RoundRobin => Some(vec![self.next(nodes)]),
            Policy::LeastCpu => Some(least(nodes, |node| share_of_cpu(nodes, node))),
            Policy::LeastMemory => Some(least(nodes, |node| share_of_memory(nodes, node))),
            Policy::MostAllocated => Some(least(nodes, |node| free(nodes, node))),
        }
    }

    /// The first node after the last one by name, or the first of all.
    fn next(&mut self, nodes: Nodes<'_>) -> NodeId {
        let names = &nodes.table.names;
        let by_name = |node: &&NodeId| &names[**node];
        let after = nodes.feasible.iter().filter(|node| names[**node] > self.last);
        let next = after
            .min_by_key(by_name)
            .or_else(|| nodes.feasible.iter().min_by_key(by_name));
        let next = next.copied().unwrap_or_default();
        self.last.clone_from(&names[next]);
        next
    }
}

/// Nodes with the least of something.
fn least(nodes: Nodes<'_>, of: impl Fn(NodeId) -> i64) -> Vec<NodeId> {
    let mut best = Vec::new();
    let mut fewest = i64::MAX;
    for &node in nodes.feasible {
        let own = of(node);
        if own < fewest {
            best.clear();
            fewest = own;
        }
        if own == fewest {
            best.push(node);
        }
    }
    best
}

/// Millionths of the node's CPU that are in use; where that is unknown, that pods have requested.
fn share_of_cpu(nodes: Nodes<'_>, node: NodeId) -> i64 {
    let table = nodes.table;
    let used = table.usage.of(&table.names[node], nodes.now);
    let used = used.map_or(table.scored_milli_cpu[node], |used| used.milli_cpu);
    millionths(used, table.allocatable_milli_cpu[node])
}

/// The same of its memory.
fn share_of_memory(nodes: Nodes<'_>, node: NodeId) -> i64 {
    let table = nodes.table;
    let used = table.usage.of(&table.names[node], nodes.now);
    let used = used.map_or(table.scored_memory[node], |used| used.memory);
    millionths(used, table.allocatable_memory[node])
}

/// Millionths of CPU and memory that stay free, together, with the pod on the node.
fn free(nodes: Nodes<'_>, node: NodeId) -> i64 {
    let (table, shape) = (nodes.table, nodes.shape);
    let cpu = table.scored_milli_cpu[node].saturating_add(shape.scored_milli_cpu);
    let memory = table.scored_memory[node].saturating_add(shape.scored_memory);
    let all = 2 * MILLION;
    all - millionths(cpu, table.allocatable_milli_cpu[node]).min(MILLION)
        - millionths(memory, table.allocatable_memory[node]).min(MILLION)
}

const MILLION: i64 = 1_000_000;

/// A node without any of it is full.
fn millionths(part: i64, whole: i64) -> i64 {
    if whole <= 0 {
        return i64::MAX;
    }
    // A node says what it has and what it uses.
    let share = i128::from(part.max(0)) * i128::from(MILLION) / i128::from(whole);
    i64::try_from(share).unwrap_or(i64::MAX)
}
