//! Cordoned nodes take only pods that tolerate the taint of being cordoned.

use crate::framework::{Change, ClusterEvents, Cycle, Filter, Plugin, Rejection};
use crate::nodes::NodeId;
use crate::object::Taint;
use crate::pod::PodInfo;
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

    /// A node helps that is cordoned no longer, and a toleration of the taint of cordoned nodes.
    fn may_help(&self, pod: &PodInfo, change: Change<'_>) -> bool {
        match change {
            Change::Own(_) => pod.shape.tolerates_if_short(std::iter::once(&cordon())) != Some(false),
            Change::Node {
                before,
                after: Some(after),
                ..
            } => !after.unschedulable && before.is_none_or(|own| own.unschedulable),
            _ => true,
        }
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
    cycle.attempt.tolerates(&cordon())
}

fn cordon() -> Taint {
    Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        effect: "NoSchedule".into(),
        ..Taint::default()
    }
}
