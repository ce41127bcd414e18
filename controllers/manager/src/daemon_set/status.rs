//! Numbers of nodes, by the pod that counts on each.

use super::plan::Snapshot;
use crate::views::DaemonSetStatus;
use jiff::Timestamp;

/// The status that is true now. `settled`: everything requested earlier has been seen, and the generation was acted on.
pub(super) fn status(snapshot: &Snapshot, settled: bool) -> DaemonSetStatus {
    let old = &snapshot.set.status;
    let mut status = DaemonSetStatus {
        observed_generation: if settled {
            snapshot.set.header.generation
        } else {
            old.observed_generation
        },
        collision_count: old.collision_count,
        conditions: old.conditions.clone(),
        ..DaemonSetStatus::default()
    };
    let by_node = snapshot.by_node();
    for (node, eligible) in &snapshot.nodes {
        let pod = by_node.get(node.as_str()).and_then(|pods| pods.first());
        if !eligible.should_run {
            status.number_misscheduled += i32::from(pod.is_some());
            continue;
        }
        status.desired_number_scheduled += 1;
        let Some(pod) = pod else { continue };
        status.current_number_scheduled += 1;
        status.number_ready += i32::from(pod.ready);
        status.number_available += i32::from(snapshot.is_available(pod));
        status.updated_number_scheduled += i32::from(snapshot.is_updated(pod));
    }
    status.number_unavailable = status.desired_number_scheduled - status.number_available;
    status
}

/// Time at which the next ready pod becomes available.
pub(super) fn next_available(snapshot: &Snapshot) -> Option<Timestamp> {
    let seconds = snapshot.set.min_ready_seconds;
    let ready = snapshot.pods.iter().filter(|pod| pod.ready);
    ready
        .filter_map(|pod| pod.available_at(seconds))
        .filter(|at| *at > snapshot.now)
        .min()
}
