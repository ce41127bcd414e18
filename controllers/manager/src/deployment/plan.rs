//! Next steps of a Deployment: scale, create, annotate, clean up. Pure.

use super::sets::{Scale, SetRef};
use super::snapshot::Snapshot;
use super::{revisions, rolling, scaling};

/// One round.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Make the set of the present template, of this size.
    pub(super) create_new: Option<i32>,
    /// Bring the new set's annotations and `minReadySeconds` up to date.
    pub(super) refresh_new: bool,
    pub(super) scale: Vec<Scale>,
    /// Old sets that history has no room for.
    pub(super) delete: Vec<SetRef>,
}

/// Decides the next steps of a Deployment that is not being deleted.
pub(super) fn plan(snapshot: &Snapshot) -> Plan {
    let deployment = &snapshot.deployment;
    let (new, old) = (snapshot.new_set(), snapshot.old_sets());
    if deployment.paused || scaling::is_scaling(deployment, &snapshot.sets) {
        let scale = scaling::scale(deployment, new.as_ref(), &old);
        let delete = if deployment.paused {
            revisions::to_clean_up(deployment, &old)
        } else {
            Vec::new()
        };
        return Plan {
            refresh_new: new.is_some(),
            scale,
            delete,
            create_new: None,
        };
    }
    match deployment.rolling {
        Some(bounds) => roll(snapshot, bounds, new, &old),
        None => recreate(snapshot, new, &old),
    }
}

fn roll(
    snapshot: &Snapshot,
    bounds: crate::views::deployment::Rolling,
    new: Option<SetRef>,
    old: &[SetRef],
) -> Plan {
    let deployment = &snapshot.deployment;
    let Some(new) = new else {
        let create_new = Some(rolling::new_size(deployment, &snapshot.sets, 0));
        return Plan {
            create_new,
            ..Plan::default()
        };
    };
    let mut plan = Plan {
        refresh_new: true,
        ..Plan::default()
    };
    plan.scale
        .extend(rolling::scale_new(deployment, &new, &snapshot.sets));
    if plan.scale.is_empty() {
        plan.scale = rolling::scale_old(deployment, bounds, &new, old);
    }
    if plan.scale.is_empty() && super::status::is_complete(deployment, &deployment.status) {
        plan.delete = revisions::to_clean_up(deployment, old);
    }
    plan
}

fn recreate(snapshot: &Snapshot, new: Option<SetRef>, old: &[SetRef]) -> Plan {
    let deployment = &snapshot.deployment;
    let mut plan = Plan {
        refresh_new: new.is_some(),
        ..Plan::default()
    };
    let active = old.iter().filter(|set| set.replicas > 0);
    plan.scale = active
        .map(|set| Scale {
            set: set.clone(),
            to: 0,
        })
        .collect();
    if !plan.scale.is_empty() || snapshot.old_pods_running {
        return plan;
    }
    match new {
        None => plan.create_new = Some(deployment.replicas),
        Some(new) if new.replicas != deployment.replicas => {
            plan.scale.push(Scale {
                set: new,
                to: deployment.replicas,
            });
        }
        Some(_) if super::status::is_complete(deployment, &deployment.status) => {
            plan.delete = revisions::to_clean_up(deployment, old);
        }
        Some(_) => {}
    }
    plan
}
