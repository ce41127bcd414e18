//! A node must have what the pod asks for, and the emptier it is the better.

use crate::framework::{ClusterEvents, Cycle, Filter, MAX_NODE_SCORE, Plugin, Rejection, Score};
use crate::nodes::{NodeId, NodeTable};
use crate::pod::Shape;
use std::borrow::Cow;

#[derive(Debug)]
pub(super) struct NodeResourcesFit;

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    fn requeue_on(&self) -> ClusterEvents {
        ClusterEvents::POD_GONE
            .and(ClusterEvents::NODE_ADD)
            .and(ClusterEvents::NODE_ALLOCATABLE)
            .and(ClusterEvents::POD_SELF)
    }

    fn filter<'a>(&self, cycle: Cycle<'a>) -> Option<Box<dyn Filter + 'a>> {
        let (shape, nodes) = (&*cycle.pod.shape, cycle.nodes);
        Some(Box::new(move |node: NodeId| {
            if fits(shape, nodes, node) {
                Ok(())
            } else {
                Err(insufficient(shape, nodes, node))
            }
        }))
    }

    /// Least allocated: the free share of CPU and of memory, equally weighted.
    fn score<'a>(&self, cycle: Cycle<'a>) -> Option<Box<dyn Score + 'a>> {
        let (shape, nodes) = (&*cycle.pod.shape, cycle.nodes);
        Some(Box::new(move |node: NodeId| {
            let cpu = free_share(
                nodes.scored_milli_cpu[node] + shape.scored_milli_cpu,
                nodes.allocatable_milli_cpu[node],
            );
            let memory = free_share(
                nodes.scored_memory[node] + shape.scored_memory,
                nodes.allocatable_memory[node],
            );
            match (cpu, memory) {
                (Some(cpu), Some(memory)) => (cpu + memory) / 2,
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => 0,
            }
        }))
    }
}

fn free_share(requested: i64, allocatable: i64) -> Option<i64> {
    if allocatable == 0 {
        return None;
    }
    if requested > allocatable {
        return Some(0);
    }
    // A node says what it has.
    let free = i128::from(allocatable - requested) * i128::from(MAX_NODE_SCORE) / i128::from(allocatable);
    i64::try_from(free).ok()
}

/// The common case without making words.
fn fits(shape: &Shape, nodes: &NodeTable, node: NodeId) -> bool {
    let requests = &shape.requests;
    let has =
        |request: i64, allocatable: i64, requested: i64| request == 0 || request <= allocatable - requested;
    i64::try_from(nodes.pods[node].len()).is_ok_and(|pods| pods < nodes.allowed_pods[node])
        && has(
            requests.milli_cpu,
            nodes.allocatable_milli_cpu[node],
            nodes.requested_milli_cpu[node],
        )
        && has(
            requests.memory,
            nodes.allocatable_memory[node],
            nodes.requested_memory[node],
        )
        && has(
            requests.ephemeral_storage,
            nodes.allocatable_ephemeral_storage[node],
            nodes.requested_ephemeral_storage[node],
        )
        && requests.scalars.iter().all(|(name, request)| {
            let of = |column: &[std::collections::BTreeMap<Box<str>, i64>]| {
                column[node].get(name).copied().unwrap_or(0)
            };
            has(
                *request,
                of(&nodes.allocatable_scalars),
                of(&nodes.requested_scalars),
            )
        })
}

/// Everything that is short. It cannot be helped by preemption when the pod wants more than the node ever had.
fn insufficient(shape: &Shape, nodes: &NodeTable, node: NodeId) -> Rejection {
    let mut reasons: Vec<Cow<'static, str>> = Vec::new();
    let mut unresolvable = false;
    let mut ask = |name: Cow<'static, str>, request: i64, allocatable: i64, requested: i64| {
        if request > 0 && request > allocatable - requested {
            reasons.push(name);
            unresolvable |= request > allocatable;
        }
    };
    let pods = i64::try_from(nodes.pods[node].len()).unwrap_or(i64::MAX);
    if pods >= nodes.allowed_pods[node] {
        // A node without room for any pod is no different from a full one to upstream: preemption is tried.
        ask("Too many pods".into(), 1, 1, 1);
    }
    let requests = &shape.requests;
    ask(
        "Insufficient cpu".into(),
        requests.milli_cpu,
        nodes.allocatable_milli_cpu[node],
        nodes.requested_milli_cpu[node],
    );
    ask(
        "Insufficient memory".into(),
        requests.memory,
        nodes.allocatable_memory[node],
        nodes.requested_memory[node],
    );
    ask(
        "Insufficient ephemeral-storage".into(),
        requests.ephemeral_storage,
        nodes.allocatable_ephemeral_storage[node],
        nodes.requested_ephemeral_storage[node],
    );
    for (name, request) in &requests.scalars {
        let allocatable = nodes.allocatable_scalars[node].get(name).copied().unwrap_or(0);
        let requested = nodes.requested_scalars[node].get(name).copied().unwrap_or(0);
        ask(
            format!("Insufficient {name}").into(),
            *request,
            allocatable,
            requested,
        );
    }
    Rejection {
        reasons,
        unresolvable,
    }
}
