//! A node must have what the pod requests; how full it is rates it, by the strategy of the profile: the emptier it is the
//! better, by default.

use super::resource_allocation::{Rated, free_percent, percent};
use crate::config::args::{NodeResourcesFitArgs, ScoringStrategy, ShapePoint, score_on};
use crate::framework::{Change, ClusterEvents, Cycle, Filter, NodeState, Plugin, Rejection, Score};
use crate::nodes::{NodeId, NodeTable};
use crate::pod::{PodInfo, Shape};
use crate::resources::Resources;
use crate::short_lists::FEW;
use std::borrow::Cow;

#[derive(Debug)]
pub(super) struct NodeResourcesFit {
    args: NodeResourcesFitArgs,
    rated: Vec<Rated>,
}

impl NodeResourcesFit {
    pub(super) fn new(args: &NodeResourcesFitArgs) -> Self {
        Self {
            rated: Rated::all(&args.resources),
            args: args.clone(),
        }
    }

    /// Reports whether the profile ignores an extended resource.
    fn ignores(&self, name: &str) -> bool {
        if self.args.ignored_resources.is_empty() && self.args.ignored_resource_groups.is_empty() {
            return false;
        }
        let Some((group, _)) = name.split_once('/').filter(|_| !name.contains("kubernetes.io/")) else {
            return false;
        };
        self.args.ignored_resources.contains(name) || self.args.ignored_resource_groups.contains(group)
    }

    /// Requests that the node itself must have room for: not those that devices of a class are claimed for.
    fn scalars<'s>(
        &'s self,
        shape: &'s Shape,
        nodes: &'s NodeTable,
        node: NodeId,
    ) -> impl Iterator<Item = (&'s str, i64)> {
        let all = shape.requests.scalars.iter();
        all.map(|(name, request)| (&**name, *request))
            .filter(move |(name, _)| !self.ignores(name) && !by_devices(name, nodes, node))
    }
}

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    fn requeue_on(&self) -> ClusterEvents {
        ClusterEvents::POD_GONE
            .and(ClusterEvents::POD_SCALE_DOWN)
            .and(ClusterEvents::NODE_ADD)
            .and(ClusterEvents::NODE_ALLOCATABLE)
            .and(ClusterEvents::POD_SELF)
            .and(ClusterEvents::CLASS_RESOURCE)
    }

    /// A pod that is gone always helps, one that wants less where it is less of what the pod wants, and a node where the pod
    /// has room on it while it is empty, which it had not before.
    fn may_help(&self, pod: &PodInfo, change: Change<'_>) -> bool {
        let requests = &pod.shape.requests;
        match change {
            Change::Own(before) => before.shape.requests.exceed(requests),
            Change::Placed {
                before: Some(before),
                after: Some(after),
                ..
            } => any_of(requests, &after.shape.requests, &before.shape.requests),
            Change::Node {
                before,
                after: Some(after),
                nodes,
            } => {
                let is_more = |own: &NodeState| {
                    own.allowed_pods < after.allowed_pods
                        || any_of(requests, &own.allocatable, &after.allocatable)
                };
                self.fits_empty(requests, after, nodes) && before.is_none_or(is_more)
            }
            _ => true,
        }
    }

    fn filter<'a>(&'a self, cycle: Cycle<'a>) -> Option<Box<dyn Filter + 'a>> {
        let (shape, nodes) = (&*cycle.pod.shape, cycle.nodes);
        Some(Box::new(move |node: NodeId| {
            if self.fits(shape, nodes, node) {
                Ok(())
            } else {
                Err(self.insufficient(shape, nodes, node))
            }
        }))
    }

    fn score<'a>(&'a self, cycle: Cycle<'a>) -> Option<Box<dyn Score + 'a>> {
        let (shape, nodes) = (&*cycle.pod.shape, cycle.nodes);
        Some(Box::new(move |node: NodeId| match &self.args.strategy {
            ScoringStrategy::LeastAllocated => mean(&self.rated, shape, nodes, node, free_percent),
            ScoringStrategy::MostAllocated => mean(&self.rated, shape, nodes, node, percent),
            ScoringStrategy::RequestedToCapacityRatio(points) => {
                by_ratio(&self.rated, points, shape, nodes, node)
            }
        }))
    }
}

/// Reports whether a class of devices serves the resource, which the node has from no device plugin.
fn by_devices(name: &str, nodes: &NodeTable, node: NodeId) -> bool {
    is_by_devices(name, nodes, nodes.allocatable_scalars[node].get(name))
}

fn is_by_devices(name: &str, nodes: &NodeTable, own: Option<&i64>) -> bool {
    own.is_none_or(|amount| *amount <= 0) && nodes.devices.classes.of_resource(name).is_some()
}

/// Reports whether there is more of a resource that is requested.
fn any_of(requests: &Resources, less: &Resources, more: &Resources) -> bool {
    let is_more = |request: i64, less: i64, more: i64| request > 0 && less < more;
    let mut scalars = requests.scalars.iter();
    is_more(requests.milli_cpu, less.milli_cpu, more.milli_cpu)
        || is_more(requests.memory, less.memory, more.memory)
        || is_more(
            requests.ephemeral_storage,
            less.ephemeral_storage,
            more.ephemeral_storage,
        )
        || requests.scalars.len() > FEW
        || scalars.any(|(name, request)| is_more(*request, less.scalar(name), more.scalar(name)))
}

/// The weighted mean of the resources' scores, rounded down.
fn mean(
    rated: &[Rated],
    shape: &Shape,
    nodes: &NodeTable,
    node: NodeId,
    score: impl Fn(i64, i64) -> i64,
) -> i64 {
    let (mut sum, mut weights) = (0, 0);
    for one in rated {
        if let Some(amounts) = one.assumed(shape, nodes, node) {
            sum += one.weight * score(amounts.with_pod, amounts.allocatable);
            weights += one.weight;
        }
    }
    if weights == 0 { 0 } else { sum / weights }
}

/// The weighted mean of the scores above zero that the points give to the shares in use, rounded.
fn by_ratio(rated: &[Rated], points: &[ShapePoint], shape: &Shape, nodes: &NodeTable, node: NodeId) -> i64 {
    let (mut sum, mut weights) = (0, 0);
    for one in rated {
        let Some(amounts) = one.assumed(shape, nodes, node) else {
            continue;
        };
        let score = score_on(points, percent(amounts.with_pod, amounts.allocatable));
        if score > 0 {
            sum += one.weight * score;
            weights += one.weight;
        }
    }
    // Half a point and more is rounded up.
    if weights == 0 {
        0
    } else {
        (2 * sum + weights) / (2 * weights)
    }
}

impl NodeResourcesFit {
    /// Reports whether the node has room for the requests while no pod is on it.
    fn fits_empty(&self, requests: &Resources, node: &NodeState, nodes: &NodeTable) -> bool {
        let own = &node.allocatable;
        let scalars = || {
            let wanted = requests.scalars.iter().filter(|(name, request)| {
                let is_by_devices = || is_by_devices(name, nodes, own.scalars.get(*name));
                **request > 0 && !self.ignores(name) && !is_by_devices()
            });
            wanted
                .take(FEW)
                .all(|(name, request)| *request <= own.scalar(name))
        };
        node.allowed_pods > 0
            && requests.milli_cpu <= own.milli_cpu
            && requests.memory <= own.memory
            && requests.ephemeral_storage <= own.ephemeral_storage
            && scalars()
    }

    /// The common case without making words.
    fn fits(&self, shape: &Shape, nodes: &NodeTable, node: NodeId) -> bool {
        let requests = &shape.requests;
        let has = |request: i64, allocatable: i64, requested: i64| {
            request == 0 || request <= allocatable - requested
        };
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
            && self.scalars(shape, nodes, node).all(|(name, request)| {
                let of = |column: &[std::collections::BTreeMap<Box<str>, i64>]| {
                    column[node].get(name).copied().unwrap_or(0)
                };
                has(
                    request,
                    of(&nodes.allocatable_scalars),
                    of(&nodes.requested_scalars),
                )
            })
    }

    /// Everything that is short. It cannot be helped by preemption when the pod wants more than the node ever had.
    fn insufficient(&self, shape: &Shape, nodes: &NodeTable, node: NodeId) -> Rejection {
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
        for (name, request) in self.scalars(shape, nodes, node) {
            let allocatable = nodes.allocatable_scalars[node].get(name).copied().unwrap_or(0);
            let requested = nodes.requested_scalars[node].get(name).copied().unwrap_or(0);
            ask(
                format!("Insufficient {name}").into(),
                request,
                allocatable,
                requested,
            );
        }
        Rejection {
            reasons,
            unresolvable,
        }
    }
}
