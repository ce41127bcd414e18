//! Two pods cannot have the same host port on one node.

use crate::framework::{Change, ClusterEvents, Cycle, Filter, Plugin, Rejection};
use crate::nodes::NodeId;
use crate::pod::PodInfo;

/// Pairs of ports that are compared when a pod is gone.
const MOST_PAIRS: usize = 256;

#[derive(Debug)]
pub(super) struct NodePorts;

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        "NodePorts"
    }

    fn requeue_on(&self) -> ClusterEvents {
        ClusterEvents::POD_GONE.and(ClusterEvents::NODE_ADD)
    }

    /// A pod that is gone helps where it had a port that the pod wants.
    fn may_help(&self, pod: &PodInfo, change: Change<'_>) -> bool {
        let Change::Placed {
            before: Some(gone), ..
        } = change
        else {
            return true;
        };
        let (wanted, freed) = (&pod.shape.ports, &gone.shape.ports);
        let is_freed = |port| freed.iter().any(|own| own.conflicts_with(port));
        wanted.len().saturating_mul(freed.len()) > MOST_PAIRS || wanted.iter().any(is_freed)
    }

    fn filter<'a>(&self, cycle: Cycle<'a>) -> Option<Box<dyn Filter + 'a>> {
        let wanted = &cycle.pod.shape.ports;
        if wanted.is_empty() {
            return None;
        }
        Some(Box::new(move |node: NodeId| {
            let taken = &cycle.nodes.ports[node];
            if wanted
                .iter()
                .all(|port| !taken.iter().any(|own| own.conflicts_with(port)))
            {
                return Ok(());
            }
            Err(Rejection::unschedulable(
                "node(s) didn't have free ports for the requested pod ports",
            ))
        }))
    }
}
