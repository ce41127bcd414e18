//! Counts of pods and revisions. Pure.

use super::identity::revision_of;
use super::plan::{Snapshot, is_running_and_ready};
use crate::views::StatefulSetStatus;

/// The status that is true now, after so many pods were deleted to be updated. An update that is complete makes its
/// revision the current one.
pub(super) fn status(
    snapshot: &Snapshot<'_>,
    collision_count: i32,
    deleted_for_update: usize,
) -> StatefulSetStatus {
    let set = &snapshot.set;
    let mut status = StatefulSetStatus {
        observed_generation: set.header.generation,
        current_revision: snapshot.current.to_owned(),
        update_revision: snapshot.update.to_owned(),
        collision_count: Some(collision_count),
        conditions: set.status.conditions.clone(),
        ..StatefulSetStatus::default()
    };
    for pod in snapshot.pods.values() {
        status.replicas += 1;
        if is_running_and_ready(pod) {
            status.ready_replicas += 1;
            status.available_replicas += i32::from(pod.is_available(set.min_ready_seconds, snapshot.now));
        }
        if !pod.header.is_deleting() {
            status.current_replicas += i32::from(revision_of(pod) == snapshot.current);
            status.updated_replicas += i32::from(revision_of(pod) == snapshot.update);
        }
    }
    status.current_replicas -= i32::try_from(deleted_for_update).unwrap_or(0);
    let complete = [status.updated_replicas, status.ready_replicas, status.replicas];
    if complete.iter().all(|count| *count == set.replicas) {
        status.current_replicas = status.updated_replicas;
        status.current_revision.clone_from(&status.update_revision);
    }
    status
}

/// Reports whether a status differs from the written one in anything but its collision count.
pub(super) fn differs(new: &StatefulSetStatus, written: &StatefulSetStatus) -> bool {
    let collision_count = new.collision_count;
    *new != StatefulSetStatus {
        collision_count,
        ..written.clone()
    }
}
