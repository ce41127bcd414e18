//! A pod goes where its claims have devices, or where devices can be allocated to them.
//!
//! The answers come from [`PodDevices`](crate::devices::pod_devices); the scheduler assumes what the chosen node gives, and
//! the pod is bound once its claims say so.

use crate::config::args::DynamicResourcesArgs;
use crate::devices::DYNAMIC_RESOURCES;
use crate::devices::pod_devices::claims_of;
use crate::framework::{ClusterEvents, Cycle, Filter, MAX_NODE_SCORE, NodeNames, Plugin, Rejection, Scope};
use crate::nodes::{NodeId, NodeTable};
use crate::pod::PodInfo;

#[derive(Debug)]
pub(super) struct DynamicResources(DynamicResourcesArgs);

impl DynamicResources {
    pub(super) fn new(args: DynamicResourcesArgs) -> Self {
        Self(args)
    }
}

impl Plugin for DynamicResources {
    fn name(&self) -> &'static str {
        DYNAMIC_RESOURCES
    }

    fn scope(&self) -> Scope {
        Scope::Cluster
    }

    fn requeue_on(&self) -> ClusterEvents {
        ClusterEvents::DEVICE_CLAIM
            .and(ClusterEvents::DEVICE_CLASS)
            .and(ClusterEvents::DEVICE_SLICE)
            .and(ClusterEvents::POD_SELF)
            .and(ClusterEvents::NODE_ADD)
            .and(ClusterEvents::NODE_LABEL)
            .and(ClusterEvents::NODE_ALLOCATABLE)
    }

    /// Holds a pod back whose claims are not there yet.
    fn pre_enqueue(&self, pod: &PodInfo, nodes: &NodeTable) -> Result<(), String> {
        if !pod.has_device_claims() {
            return Ok(());
        }
        claims_of(pod, &nodes.devices).map(drop)
    }

    fn node_names(&self, cycle: Cycle<'_>) -> Result<NodeNames, Rejection> {
        let sorted = cycle.attempt.devices(cycle.nodes, self.0);
        sorted.as_ref().map(|_| None).map_err(Clone::clone)
    }

    fn filter<'a>(&self, cycle: Cycle<'a>) -> Option<Box<dyn Filter + 'a>> {
        let devices = cycle.attempt.devices(cycle.nodes, self.0).as_ref().ok()?;
        if devices.is_indifferent() {
            return None;
        }
        Some(Box::new(move |node: NodeId| {
            devices.check(cycle.attempt, cycle.nodes, node)
        }))
    }

    /// The higher the alternative of a list of them stands, the better.
    fn cluster_scores(&self, cycle: Cycle<'_>, feasible: &[NodeId]) -> Option<Vec<i64>> {
        let devices = cycle.attempt.devices(cycle.nodes, self.0).as_ref().ok()?;
        if !devices.rates_nodes(cycle.attempt) {
            return None;
        }
        let scores = feasible.iter().map(|node| devices.score(*node));
        let scores: Vec<i64> = scores.collect();
        let most = scores.iter().copied().max().filter(|most| *most > 0)?;
        Some(
            scores
                .into_iter()
                .map(|own| own * MAX_NODE_SCORE / most)
                .collect(),
        )
    }
}
