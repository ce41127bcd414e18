//! Sizes when `spec.replicas` changed in the middle of a rollout: every active set gets its share.

use super::revisions::{MAX_REPLICAS, desired_of};
use super::rolling::counts_are_of_its_size;
use super::sets::{Scale, SetRef};
use crate::views::DeploymentView;

/// Reports whether `spec.replicas` differs from the size that the active sets were last scaled for.
pub(super) fn is_scaling(deployment: &DeploymentView, sets: &[SetRef]) -> bool {
    let active = sets.iter().filter(|set| set.replicas > 0);
    active
        .filter_map(|set| desired_of(set))
        .any(|desired| desired != deployment.replicas)
}

/// The sizes to scale to.
pub(super) fn scale(deployment: &DeploymentView, new: Option<&SetRef>, old: &[SetRef]) -> Vec<Scale> {
    if let Some(only) = active_or_latest(new, old) {
        // The size it was scaled for is part of its size: without it the sets would be scaled for ever.
        let same = only.replicas == deployment.replicas && desired_of(&only) == Some(deployment.replicas);
        return if same {
            Vec::new()
        } else {
            vec![Scale {
                set: only,
                to: deployment.replicas,
            }]
        };
    }
    if new.is_some_and(|new| is_saturated(deployment, new)) {
        let active = old.iter().filter(|set| set.replicas > 0);
        return active
            .map(|set| Scale {
                set: set.clone(),
                to: 0,
            })
            .collect();
    }
    match deployment.rolling {
        Some(rolling) => in_proportion(deployment, rolling.max_surge, new, old),
        None => Vec::new(),
    }
}

/// The only set with pods, or the newest where none has; `None` when several have.
fn active_or_latest(new: Option<&SetRef>, old: &[SetRef]) -> Option<SetRef> {
    let mut active = old.iter().chain(new).filter(|set| set.replicas > 0);
    match (active.next(), active.next()) {
        (None, _) => new
            .or_else(|| old.iter().max_by_key(|set| (set.created, set.key().clone())))
            .cloned(),
        (Some(only), None) => Some(only.clone()),
        _ => None,
    }
}

fn is_saturated(deployment: &DeploymentView, new: &SetRef) -> bool {
    new.replicas == deployment.replicas
        && desired_of(new) == Some(deployment.replicas)
        && new.status.available_replicas == deployment.replicas
        && counts_are_of_its_size(new)
}

fn in_proportion(
    deployment: &DeploymentView,
    surge: i32,
    new: Option<&SetRef>,
    old: &[SetRef],
) -> Vec<Scale> {
    let mut sets: Vec<SetRef> = old
        .iter()
        .chain(new)
        .filter(|set| set.replicas > 0)
        .cloned()
        .collect();
    let allowed = if deployment.replicas > 0 {
        deployment.replicas + surge
    } else {
        0
    };
    let to_add = allowed - sets.iter().map(|set| set.replicas).sum::<i32>();
    // Largest first; of equals the newer when growing, the older when shrinking.
    sets.sort_by(|a, b| {
        let age = a.created.cmp(&b.created).then_with(|| a.key().cmp(b.key()));
        b.replicas
            .cmp(&a.replicas)
            .then(if to_add > 0 { age.reverse() } else { age })
    });
    let mut sizes = Vec::with_capacity(sets.len());
    let mut added = 0;
    for set in &sets {
        let share = if to_add == 0 {
            0
        } else {
            share(deployment, surge, set, to_add, added)
        };
        sizes.push(set.replicas + share);
        added += share;
    }
    // The largest set takes what rounding has left, so that the sum is exact (upstream's `scale`).
    if let Some(first) = sizes.first_mut() {
        *first = (*first + to_add - added).max(0);
    }
    // Sets of the right size get the new size too, so that the next round finds nothing to do.
    sets.into_iter()
        .zip(sizes)
        .map(|(set, to)| Scale { set, to })
        .collect()
}

fn share(deployment: &DeploymentView, surge: i32, set: &SetRef, to_add: i32, added: i32) -> i32 {
    if to_add == 0 || to_add == added {
        return 0;
    }
    let (fraction, left) = (fraction(deployment, surge, set), to_add - added);
    if to_add > 0 {
        fraction.min(left)
    } else {
        fraction.max(left)
    }
}

fn fraction(deployment: &DeploymentView, surge: i32, set: &SetRef) -> i32 {
    if deployment.replicas == 0 {
        return -set.replicas;
    }
    let max_before = set
        .annotations
        .get(MAX_REPLICAS)
        .and_then(|text| text.parse::<i32>().ok());
    let max_before = max_before
        .filter(|max| *max > 0)
        // A set without the annotation is from before it was introduced, or was adopted.
        .unwrap_or(deployment.status.replicas)
        .max(1);
    let size = f64::from(set.replicas) * f64::from(deployment.replicas + surge) / f64::from(max_before);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a share of replica counts fits what they fit"
    )]
    let size = size.round() as i32;
    size - set.replicas
}
