//! A pod with scheduling gates waits until the last one is removed.

use crate::framework::{ClusterEvents, Plugin};
use crate::nodes::NodeTable;
use crate::pod::PodInfo;

#[derive(Debug)]
pub(super) struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        "SchedulingGates"
    }

    fn requeue_on(&self) -> ClusterEvents {
        ClusterEvents::POD_SELF
    }

    fn pre_enqueue(&self, pod: &PodInfo, _: &NodeTable) -> Result<(), String> {
        let gates = pod.pod.spec.scheduling_gates.items();
        if gates.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = gates.iter().map(|gate| &*gate.name).collect();
        Err(format!("waiting for scheduling gates: [{}]", names.join(" ")))
    }
}
