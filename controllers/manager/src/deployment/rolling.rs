//! Sizes that the new set and the old ones may have, so that neither bound of the rolling update is ever broken.

use super::sets::{Scale, SetRef};
use crate::views::DeploymentView;
use crate::views::deployment::Rolling;

/// Tenants choose the sizes of sets.
fn sum(numbers: impl IntoIterator<Item = i32>) -> i32 {
    numbers.into_iter().fold(0, i32::saturating_add)
}

/// The size of the new set: as much as the surge has room for, never more than is requested.
pub(super) fn new_size(deployment: &DeploymentView, all: &[SetRef], current: i32) -> i32 {
    let Some(rolling) = deployment.rolling else {
        return deployment.replicas;
    };
    let room = deployment
        .replicas
        .saturating_add(rolling.max_surge)
        .saturating_sub(sum(all.iter().map(|set| set.replicas)));
    if room <= 0 {
        return current;
    }
    current + room.min(deployment.replicas - current).max(0)
}

/// The next step for the new set, where one is due.
pub(super) fn scale_new(deployment: &DeploymentView, new: &SetRef, all: &[SetRef]) -> Option<Scale> {
    // Scaled down during a rollout: the new set follows at once, whatever the old ones have.
    let size = if new.replicas > deployment.replicas {
        deployment.replicas
    } else {
        new_size(deployment, all, new.replicas)
    };
    (size != new.replicas).then(|| Scale {
        set: new.clone(),
        to: size,
    })
}

/// The next steps for the old sets: first pods that are not available anyway, then as many as availability allows.
pub(super) fn scale_old(
    deployment: &DeploymentView,
    rolling: Rolling,
    new: &SetRef,
    old: &[SetRef],
) -> Vec<Scale> {
    let mut sizes: Vec<(SetRef, i32)> = old.iter().map(|set| (set.clone(), set.replicas)).collect();
    // The oldest first, as upstream; the key breaks ties, so that a simulation runs the same twice.
    sizes.sort_by_key(|(set, _)| (set.created, set.key().clone()));
    let old_total = sum(sizes.iter().map(|(_, size)| *size));
    if old_total == 0 || !old.iter().chain([new]).all(counts_are_of_its_size) {
        return Vec::new();
    }
    let min_available = deployment.replicas - rolling.max_unavailable;
    let new_unavailable = new.replicas - available(new);
    let room = sum([old_total, new.replicas, -min_available, -new_unavailable]);
    if room <= 0 {
        return Vec::new();
    }
    // Before available ones: pods that serve no one free room for the new set without costing availability.
    clean_up_unhealthy(&mut sizes, room);
    scale_down_available(&mut sizes, new, min_available);
    sizes
        .into_iter()
        .filter(|(set, size)| *size != set.replicas)
        .map(|(set, to)| Scale { set, to })
        .collect()
}

fn clean_up_unhealthy(sizes: &mut [(SetRef, i32)], mut room: i32) {
    for (set, size) in sizes {
        let unhealthy = *size - available(set);
        let step = unhealthy.min(room);
        *size -= step;
        room -= step;
    }
}

fn scale_down_available(sizes: &mut [(SetRef, i32)], new: &SetRef, min_available: i32) {
    let old = sum(sizes.iter().map(|(set, _)| available(set)));
    let mut room = sum([old, available(new), -min_available]);
    for (_, size) in sizes {
        if room <= 0 {
            return;
        }
        let step = (*size).min(room);
        *size -= step;
        room -= step;
    }
}

/// Reports whether the pods that status counts exist at the set's present size. A set that shrinks and grows again
/// still counts pods that went in between, until its controller has seen the new size: nothing is built on those.
/// Upstream builds on them, and can fall below the minimum.
pub(super) fn counts_are_of_its_size(set: &SetRef) -> bool {
    set.status.observed_generation >= set.header.generation
}

/// The pods of a set that are available and stay so. Pods in the status beyond the set's size are about to go: upstream
/// counts them as well and can scale an old set down twice before its status is written.
fn available(set: &SetRef) -> i32 {
    set.status.available_replicas.min(set.replicas)
}
