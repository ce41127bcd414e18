//! Order in which pods go when there are too many: one comparison per rule, in upstream's order.

use crate::views::{Phase, PodView};
use jiff::Timestamp;
use machinery_client::Object;
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Orders pods by how readily they go, first the first to go. `siblings` are the active pods of all sets of the same
/// owner; the more of them share a node, the sooner one of that node goes.
pub(super) fn rank(pods: &mut [Arc<Object<PodView>>], siblings: &[Arc<Object<PodView>>], now: Timestamp) {
    let mut on_node: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in siblings.iter().filter(|pod| !pod.node.is_empty()) {
        *on_node.entry(&pod.node).or_default() += 1;
    }
    let neighbours = |pod: &PodView| on_node.get(&*pod.node).copied().unwrap_or(0);
    pods.sort_by(|a, b| {
        let by = |rule: Ordering| rule;
        by(assigned(a).cmp(&assigned(b)))
            .then(phase(a).cmp(&phase(b)))
            .then(a.ready.cmp(&b.ready))
            .then(a.deletion_cost.cmp(&b.deletion_cost))
            .then(Reverse(neighbours(a)).cmp(&Reverse(neighbours(b))))
            .then(ready_for(a, now).cmp(&ready_for(b, now)))
            .then(b.restarts.cmp(&a.restarts))
            .then(age(a, now).cmp(&age(b, now)))
            .then(a.uid().cmp(b.uid()))
    });
}

/// Unassigned before assigned.
fn assigned(pod: &PodView) -> bool {
    !pod.node.is_empty()
}

/// Pending before unknown before running.
fn phase(pod: &PodView) -> u8 {
    match pod.phase {
        Phase::Pending => 0,
        Phase::Unknown => 1,
        _ => 2,
    }
}

/// Ready for less time before longer, on a logarithmic scale, so that equals are spread and not always the newest.
fn ready_for(pod: &PodView, now: Timestamp) -> u32 {
    if pod.ready {
        pod.ready_since.map_or(0, |since| magnitude(since, now))
    } else {
        0
    }
}

/// Newer before older, on the same scale.
fn age(pod: &PodView, now: Timestamp) -> u32 {
    magnitude(pod.created, now)
}

fn magnitude(since: Timestamp, now: Timestamp) -> u32 {
    let nanos = now.as_nanosecond().saturating_sub(since.as_nanosecond());
    u64::try_from(nanos).map_or(0, |nanos| 64 - nanos.leading_zeros())
}
