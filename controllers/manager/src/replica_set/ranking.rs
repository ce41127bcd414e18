//! Order in which pods go when there are too many: one comparison per rule, in upstream's order.

use crate::pod_progress::{by_restarts, by_stage, created, ready_since};
use crate::views::PodView;
use jiff::Timestamp;
use machinery_client::Object;
use std::cmp::Ordering;
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
    pods.sort_by(|a, b| order((a, neighbours(a)), (b, neighbours(b)), now).then(a.uid().cmp(b.uid())));
}

/// Orders two pods, each with the number of siblings on its node. Where times are of one magnitude upstream decides by
/// uid, so that its comparison has cycles; here the next rule decides.
pub(super) fn order(
    (a, near_a): (&PodView, usize),
    (b, near_b): (&PodView, usize),
    now: Timestamp,
) -> Ordering {
    by_stage(a, b)
        .then(a.deletion_cost.cmp(&b.deletion_cost))
        .then(near_b.cmp(&near_a))
        .then_with(|| age(ready_since(a), now).cmp(&age(ready_since(b), now)))
        .then_with(|| by_restarts(a, b))
        .then_with(|| age(created(a), now).cmp(&age(created(b), now)))
}

/// Later before earlier, on a logarithmic scale, so that equals are spread and not always the newest; no time comes first.
fn age(since: Option<Timestamp>, now: Timestamp) -> Option<u32> {
    since.map(|since| magnitude(since, now))
}

fn magnitude(since: Timestamp, now: Timestamp) -> u32 {
    let nanos = now.as_nanosecond().saturating_sub(since.as_nanosecond());
    u64::try_from(nanos).map_or(0, |nanos| 64 - nanos.leading_zeros())
}
