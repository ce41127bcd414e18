//! Shares of a node's resources that pods have: what NodeResourcesFit and NodeResourcesBalancedAllocation rate.

use crate::config::args::ResourceWeight;
use crate::nodes::{NodeId, NodeTable};
use crate::pod::Shape;

/// A resource, as the table of nodes has it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Cpu,
    Memory,
    EphemeralStorage,
    Scalar(Box<str>),
}

/// Amounts of a resource on a node: all of it, what its pods have, and that with the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Amounts {
    pub(super) allocatable: i64,
    pub(super) before: i64,
    pub(super) with_pod: i64,
}

/// A rated resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rated {
    kind: Kind,
    pub(super) weight: i64,
}

impl Rated {
    pub(super) fn all(resources: &[ResourceWeight]) -> Vec<Self> {
        let rated = |own: &ResourceWeight| Self {
            kind: match &*own.name {
                "cpu" => Kind::Cpu,
                "memory" => Kind::Memory,
                "ephemeral-storage" => Kind::EphemeralStorage,
                _ => Kind::Scalar(own.name.clone()),
            },
            weight: own.weight,
        };
        resources.iter().map(rated).collect()
    }

    /// The pod's request.
    pub(super) fn request(&self, shape: &Shape) -> i64 {
        let requests = &shape.requests;
        match &self.kind {
            Kind::Cpu => requests.milli_cpu,
            Kind::Memory => requests.memory,
            Kind::EphemeralStorage => requests.ephemeral_storage,
            Kind::Scalar(name) => requests.scalars.get(name).copied().unwrap_or(0),
        }
    }

    /// Amounts as pods request them. `None` where the node has none, and for a scalar that the pod does not request.
    pub(super) fn requested(&self, shape: &Shape, nodes: &NodeTable, node: NodeId) -> Option<Amounts> {
        let request = self.request(shape);
        let (allocatable, before) = match &self.kind {
            Kind::Cpu => (nodes.allocatable_milli_cpu[node], nodes.requested_milli_cpu[node]),
            Kind::Memory => (nodes.allocatable_memory[node], nodes.requested_memory[node]),
            Kind::EphemeralStorage => (
                nodes.allocatable_ephemeral_storage[node],
                nodes.requested_ephemeral_storage[node],
            ),
            Kind::Scalar(_) if request == 0 => return None,
            Kind::Scalar(name) => {
                let of = |amounts: &std::collections::BTreeMap<Box<str>, i64>| {
                    amounts.get(name).copied().unwrap_or(0)
                };
                (
                    of(&nodes.allocatable_scalars[node]),
                    of(&nodes.requested_scalars[node]),
                )
            }
        };
        (allocatable != 0).then(|| Amounts {
            allocatable,
            before,
            with_pod: before.saturating_add(request),
        })
    }

    /// The same with what scoring assumes of containers that request nothing.
    pub(super) fn assumed(&self, shape: &Shape, nodes: &NodeTable, node: NodeId) -> Option<Amounts> {
        let (allocatable, before, request) = match &self.kind {
            Kind::Cpu => (
                nodes.allocatable_milli_cpu[node],
                nodes.scored_milli_cpu[node],
                shape.scored_milli_cpu,
            ),
            Kind::Memory => (
                nodes.allocatable_memory[node],
                nodes.scored_memory[node],
                shape.scored_memory,
            ),
            _ => return self.requested(shape, nodes, node),
        };
        (allocatable != 0).then(|| Amounts {
            allocatable,
            before,
            with_pod: before.saturating_add(request),
        })
    }
}

/// A share in hundredths, rounded down; what is more than all is all.
pub(super) fn percent(part: i64, whole: i64) -> i64 {
    if part >= whole {
        return 100;
    }
    // A node says what it has.
    let share = i128::from(part) * 100 / i128::from(whole);
    i64::try_from(share).unwrap_or(0)
}

/// The free share in hundredths, rounded down.
pub(super) fn free_percent(part: i64, whole: i64) -> i64 {
    if part > whole {
        return 0;
    }
    let share = (i128::from(whole) - i128::from(part)) * 100 / i128::from(whole);
    i64::try_from(share).unwrap_or(0)
}
