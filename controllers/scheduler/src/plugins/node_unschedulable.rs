//! Cordoned nodes take only pods that tolerate the taint of being cordoned.

use crate::framework::{ClusterEvents, Cycle, Filter, Plugin, Rejection};
use crate::nodes::NodeId;
use crate::object::Taint;

#[derive(Debug)]
pub(super) struct NodeUnschedulable;

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        "NodeUnschedulable"
    }

    fn requeue_on(&self) -> ClusterEvents {
        ClusterEvents::NODE_ADD
            .and(ClusterEvents::NODE_TAINT)
            .and(ClusterEvents::POD_SELF)
    }

    fn filter<'a>(&self, cycle: Cycle<'a>) -> Option<Box<dyn Filter + 'a>> {
        let taint = Taint {
            key: "node.kubernetes.io/unschedulable".into(),
            effect: "NoSchedule".into(),
            ..Taint::default()
        };
        if cycle
            .pod
            .shape
            .tolerations
            .items()
            .iter()
            .any(|one| one.tolerates(&taint))
        {
            return None;
        }
        Some(Box::new(move |node: NodeId| {
            if !cycle.nodes.unschedulable[node] {
                return Ok(());
            }
            Err(Rejection::unresolvable("node(s) were unschedulable"))
        }))
    }
}
