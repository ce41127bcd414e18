//! Taints keep intolerant pods away; the softer ones only make a node less welcome.

use crate::framework::{Change, ClusterEvents, Cycle, Filter, Normalize, Plugin, Rejection, Score};
use crate::nodes::NodeId;
use crate::pod::PodInfo;

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

    fn may_help(&self, pod: &PodInfo, change: Change<'_>) -> bool {
        match change {
            Change::Own(before) => before.shape.tolerations != pod.shape.tolerations,
            Change::Node {
                before,
                after: Some(after),
                ..
            } => {
                let could_enter = before.and_then(|own| pod.shape.may_enter_if_short(own));
                could_enter != Some(true) && pod.shape.may_enter_if_short(after) != Some(false)
            }
            _ => true,
        }
    }

    fn filter<'a>(&self, cycle: Cycle<'a>) -> Option<Box<dyn Filter + 'a>> {
        Some(Box::new(move |node: NodeId| {
            let mut forbidding = cycle.nodes.taints[node]
                .iter()
                .filter(|taint| taint.forbids_scheduling());
            if forbidding.all(|taint| cycle.attempt.tolerates(taint)) {
                return Ok(());
            }
            Err(Rejection::unresolvable("node(s) had untolerated taint(s)"))
        }))
    }

    fn score<'a>(&self, cycle: Cycle<'a>) -> Option<Box<dyn Score + 'a>> {
        Some(Box::new(move |node: NodeId| {
            let soft = cycle.nodes.taints[node]
                .iter()
                .filter(|taint| &*taint.effect == "PreferNoSchedule");
            let intolerable = soft.filter(|taint| !cycle.attempt.tolerates(taint)).count();
            i64::try_from(intolerable).unwrap_or(i64::MAX)
        }))
    }

    fn normalize(&self) -> Normalize {
        Normalize::Lowest
    }
}
