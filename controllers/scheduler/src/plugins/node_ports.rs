//! Two pods cannot have the same host port on one node.

use crate::framework::{ClusterEvents, Cycle, Filter, Plugin, Rejection};
use crate::nodes::NodeId;

#[derive(Debug)]
pub(super) struct NodePorts;

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        "NodePorts"
    }

    fn requeue_on(&self) -> ClusterEvents {
        ClusterEvents::POD_GONE.and(ClusterEvents::NODE_ADD)
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
