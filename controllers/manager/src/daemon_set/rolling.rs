//! Rolling updates: which old pods go, and which nodes get a new one beside theirs.

use super::plan::{Changes, PodRef, Snapshot};

/// The bounds of a rolling update over the nodes that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) max_surge: usize,
    pub(super) max_unavailable: usize,
}

/// The bounds in numbers of nodes; `None` where updates wait for deletions.
pub(super) fn bounds(snapshot: &Snapshot) -> Option<Bounds> {
    let rolling = snapshot.set.rolling.as_ref()?;
    let desired = snapshot.desired();
    let max_surge = Snapshot::scaled(rolling.max_surge.as_ref(), desired);
    let max_unavailable = Snapshot::scaled(rolling.max_unavailable.as_ref(), desired);
    // Neither is refused when it is written; a percentage of few nodes may come to it.
    let stuck = desired > 0 && max_surge == 0 && max_unavailable == 0;
    Some(Bounds {
        max_surge,
        max_unavailable: if stuck { 1 } else { max_unavailable },
    })
}

/// The next step; [`super::plan::keep`] had nothing to do before it.
pub(super) fn roll(snapshot: &Snapshot) -> Changes {
    match bounds(snapshot) {
        None => Changes::default(),
        Some(bounds) if bounds.max_surge == 0 => replace(snapshot, bounds.max_unavailable),
        Some(bounds) => surge(snapshot, bounds.max_surge),
    }
}

/// The pods of a node that stay: at most one of the present template and one of another. `None` where there are more,
/// until those are deleted.
fn old_and_new<'a>(
    snapshot: &Snapshot,
    pods: &[&'a PodRef],
) -> Option<(Option<&'a PodRef>, Option<&'a PodRef>)> {
    let (mut old, mut new) = (None, None);
    for pod in pods.iter().filter(|pod| !pod.header.is_deleting()) {
        let place = if snapshot.is_updated(pod) {
            &mut new
        } else {
            &mut old
        };
        if place.replace(*pod).is_some() {
            return None;
        }
    }
    Some((old, new))
}

/// Deletes old pods that are not available, and as many available ones as may be missing.
fn replace(snapshot: &Snapshot, max_unavailable: usize) -> Changes {
    let by_node = snapshot.by_node();
    let mut unavailable = snapshot
        .nodes
        .iter()
        .filter(|(node, own)| own.should_run && !by_node.contains_key(node.as_str()))
        .count();
    let (mut delete, mut candidates) = (Vec::new(), Vec::new());
    for pods in by_node.values() {
        match old_and_new(snapshot, pods) {
            Some((None, Some(new))) if snapshot.is_available(new) => {}
            Some((Some(old), None)) if snapshot.is_available(old) => candidates.push(old.clone()),
            Some((Some(old), None)) => {
                delete.push(old.clone());
                unavailable += 1;
            }
            // None at all, too many, or a new one that is not available yet.
            _ => unavailable += 1,
        }
    }
    candidates.truncate(max_unavailable.saturating_sub(unavailable));
    delete.extend(candidates);
    Changes {
        delete,
        ..Changes::default()
    }
}

/// Creates new pods beside old ones, and deletes the old ones whose successors are available.
fn surge(snapshot: &Snapshot, max_surge: usize) -> Changes {
    let mut changes = Changes::default();
    let (mut candidates, mut misplaced) = (Vec::new(), Vec::new());
    let (mut surging, mut available) = (0, 0);
    for (node, pods) in snapshot.by_node() {
        let Some((old, new)) = old_and_new(snapshot, &pods) else {
            surging += 1;
            continue;
        };
        available += usize::from(old.or(new).is_some_and(|pod| snapshot.is_available(pod)));
        match (old, new) {
            (None, _) => {}
            (Some(old), None) => match (snapshot.is_available(old), snapshot.should_run(node)) {
                (false, false) => changes.delete.push(old.clone()),
                (false, true) => changes.create.push(node.to_owned()),
                (true, false) => misplaced.push(old.clone()),
                (true, true) => candidates.push(node.to_owned()),
            },
            (Some(old), Some(new)) if snapshot.is_available(new) => changes.delete.push(old.clone()),
            (Some(_), Some(_)) => surging += 1,
        }
    }
    // A set that surges is to be there all the time: pods of nodes that are not its own any more stay until others are.
    misplaced.truncate(available.saturating_sub(snapshot.desired()));
    changes.delete.extend(misplaced);
    candidates.truncate(max_surge.saturating_sub(surging));
    changes.create.extend(candidates);
    changes
}
