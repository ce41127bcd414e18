//! Cordoned nodes take only pods that tolerate the taint of being cordoned.

use crate::framework::{ClusterEvents, Cycle, Filter, Plugin, Rejection};
use crate::nodes::NodeId;
use crate::object::Taint;
use std::cell::OnceCell;

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
        let tolerated = OnceCell::new();
        Some(Box::new(move |node: NodeId| {
            if !cycle.nodes.unschedulable[node] || *tolerated.get_or_init(|| tolerates_cordon(cycle)) {
                return Ok(());
            }
            Err(Rejection::unresolvable("node(s) were unschedulable"))
        }))
    }
}

fn tolerates_cordon(cycle: Cycle<'_>) -> bool {
    cycle.attempt.tolerates(&Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        effect: "NoSchedule".into(),
        ..Taint::default()
    })
}
