//! Taints keep intolerant pods away; the softer ones only make a node less welcome.

use crate::framework::{ClusterEvents, Cycle, Filter, Normalize, Plugin, Rejection, Score};
use crate::nodes::NodeId;
use crate::object::Toleration;

#[derive(Debug)]
pub(super) struct TaintToleration;

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        "TaintToleration"
    }

    fn requeue_on(&self) -> ClusterEvents {
        ClusterEvents::NODE_ADD
            .and(ClusterEvents::NODE_TAINT)
            .and(ClusterEvents::POD_SELF)
    }

    fn filter<'a>(&self, cycle: Cycle<'a>) -> Option<Box<dyn Filter + 'a>> {
        let tolerations = cycle.pod.shape.tolerations.items();
        Some(Box::new(move |node: NodeId| {
            let mut forbidding = cycle.nodes.taints[node]
                .iter()
                .filter(|taint| taint.forbids_scheduling());
            if forbidding.all(|taint| tolerations.iter().any(|one| one.tolerates(taint))) {
                return Ok(());
            }
            Err(Rejection::unresolvable("node(s) had untolerated taint(s)"))
        }))
    }

    fn score<'a>(&self, cycle: Cycle<'a>) -> Option<Box<dyn Score + 'a>> {
        let is_soft = |one: &Toleration| one.effect.is_empty() || &*one.effect == "PreferNoSchedule";
        let mut tolerations = cycle.pod.shape.tolerations.items().into_owned();
        tolerations.retain(is_soft);
        Some(Box::new(move |node: NodeId| {
            let soft = cycle.nodes.taints[node]
                .iter()
                .filter(|taint| &*taint.effect == "PreferNoSchedule");
            let intolerable = soft
                .filter(|taint| !tolerations.iter().any(|one| one.tolerates(taint)))
                .count();
            i64::try_from(intolerable).unwrap_or(i64::MAX)
        }))
    }

    fn normalize(&self) -> Normalize {
        Normalize::Lowest
    }
}
