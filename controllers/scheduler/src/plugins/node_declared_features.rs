//! A pod goes to nodes that declare the features which it needs.

use crate::framework::{Change, ClusterEvents, Cycle, Filter, Plugin, Rejection};
use crate::nodes::NodeId;
use crate::pod::PodInfo;

#[derive(Debug)]
pub(super) struct NodeDeclaredFeatures;

impl Plugin for NodeDeclaredFeatures {
    fn name(&self) -> &'static str {
        "NodeDeclaredFeatures"
    }

    fn requeue_on(&self) -> ClusterEvents {
        ClusterEvents::NODE_ADD
            .and(ClusterEvents::NODE_FEATURES)
            .and(ClusterEvents::POD_SELF)
    }

    fn may_help(&self, pod: &PodInfo, change: Change<'_>) -> bool {
        match change {
            Change::Own(before) => before.shape.needed_features != pod.shape.needed_features,
            _ => true,
        }
    }

    fn filter<'a>(&self, cycle: Cycle<'a>) -> Option<Box<dyn Filter + 'a>> {
        let needed = cycle.pod.shape.needed_features;
        if needed.is_empty() {
            return None;
        }
        Some(Box::new(move |node: NodeId| {
            if needed.are_among(cycle.nodes.declared_features[node]) {
                return Ok(());
            }
            Err(Rejection::unresolvable(
                "node(s) didn't match Pod's required features",
            ))
        }))
    }
}
