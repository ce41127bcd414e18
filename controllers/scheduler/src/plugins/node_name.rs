//! A pod that names its node goes nowhere else.

use crate::framework::{ClusterEvents, Cycle, Filter, Plugin, Rejection};
use crate::nodes::NodeId;

#[derive(Debug)]
pub(super) struct NodeName;

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        "NodeName"
    }

    fn requeue_on(&self) -> ClusterEvents {
        ClusterEvents::NODE_ADD
    }

    fn filter<'a>(&self, cycle: Cycle<'a>) -> Option<Box<dyn Filter + 'a>> {
        let wanted = cycle.pod.node_name()?;
        Some(Box::new(move |node: NodeId| {
            if *cycle.nodes.names[node] == *wanted {
                return Ok(());
            }
            Err(Rejection::unresolvable(
                "node(s) didn't match the requested node name",
            ))
        }))
    }
}
