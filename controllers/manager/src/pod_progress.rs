//! Progress of a pod: of pods too many, those go first that have done least. One comparison per rule, in upstream's order
//! (`ActivePods` and `ActivePodsWithRanks` of `controller_utils.go`).

use crate::views::{Phase, PodView};
use jiff::Timestamp;
use std::cmp::{Ordering, Reverse};

/// Orders by the way that a pod has come: unassigned, pending, unknown, running and not ready, ready.
pub(crate) fn by_stage(a: &PodView, b: &PodView) -> Ordering {
    let stage = |pod: &PodView| (!pod.node.is_empty(), phase(pod), pod.ready);
    stage(a).cmp(&stage(b))
}

/// Pending before unknown before running.
fn phase(pod: &PodView) -> u8 {
    match pod.phase {
        Phase::Pending => 0,
        Phase::Unknown => 1,
        _ => 2,
    }
}

/// Orders by the most restarts of a container, more first; then by those of a sidecar.
pub(crate) fn by_restarts(a: &PodView, b: &PodView) -> Ordering {
    let restarts = |pod: &PodView| Reverse((pod.restarts, pod.sidecar_restarts));
    restarts(a).cmp(&restarts(b))
}

/// Time since which a pod is ready. One without a known time comes before all.
pub(crate) fn ready_since(pod: &PodView) -> Option<Timestamp> {
    pod.ready_since.filter(|_| pod.ready)
}

/// Orders active pods: by stage, by the time since which they are ready, by restarts and by age, later ones first.
pub(crate) fn by_progress(a: &PodView, b: &PodView) -> Ordering {
    let later = |a: Option<Timestamp>, b: Option<Timestamp>| a.map(Reverse).cmp(&b.map(Reverse));
    by_stage(a, b)
        .then_with(|| later(ready_since(a), ready_since(b)))
        .then_with(|| by_restarts(a, b))
        .then_with(|| later(created(a), created(b)))
}

/// Time of a pod's creation, where it has one.
pub(crate) fn created(pod: &PodView) -> Option<Timestamp> {
    Some(pod.created).filter(|at| *at != Timestamp::UNIX_EPOCH)
}
