//! Plan of a set's pods: `Snapshot` is exactly what a decision may read, `Plan` is a value.

use super::ranking::rank;
use crate::pod_control::BURST_REPLICAS;
use crate::views::pod::is_active;
use crate::views::{PodView, SetView};
use jiff::Timestamp;
use machinery_client::Object;
use std::sync::Arc;

/// A pod as plans handle it.
pub(super) type PodRef = Arc<Object<PodView>>;

/// Input of a plan.
pub(super) struct Snapshot<P> {
    pub(super) set: Arc<Object<P>>,
    /// Pods whose controller is this set.
    pub(super) owned: Vec<PodRef>,
    /// Pods of the namespace without a controller.
    pub(super) orphans: Vec<PodRef>,
    /// Active pods of all sets of this set's owner, this one included; none where no pod may have to go.
    pub(super) siblings: Vec<PodRef>,
    /// True if all earlier creations and deletions have been seen.
    pub(super) settled: bool,
    pub(super) now: Timestamp,
}

/// Changes to carry out.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) create: usize,
    /// The pods to delete; once they are, none of `active`.
    pub(super) delete: Vec<PodRef>,
    pub(super) adopt: Vec<PodRef>,
    pub(super) release: Vec<PodRef>,
    /// The pods that status counts: owned or about to be, matching, active.
    pub(super) active: Vec<PodRef>,
    /// Pods on their way out.
    pub(super) terminating: i32,
    /// True if all earlier creations and deletions have been seen.
    pub(super) settled: bool,
    /// Time at which a ready pod is reconciled again because it becomes available.
    pub(super) requeue_at: Option<Timestamp>,
}

/// Decides.
pub(super) fn plan<P: SetView>(snapshot: &Snapshot<P>) -> Plan {
    let mut plan = Plan {
        settled: snapshot.settled,
        ..Plan::default()
    };
    claim(snapshot, &mut plan);
    // With expectations open the cache does not show the own writes: scaling by it would create or delete
    // twice.
    if snapshot.settled && !snapshot.set.header.is_deleting() {
        scale(snapshot, &mut plan);
    }
    plan.requeue_at = next_available(snapshot, &plan.active);
    plan
}

/// Adopts orphans that match, releases what does not match any more, counts the rest.
fn claim<P: SetView>(snapshot: &Snapshot<P>, plan: &mut Plan) {
    let set = &snapshot.set;
    let matches = |pod: &PodRef| set.view().selector.matches(&pod.header);
    let going = set.header.is_deleting();
    for pod in &snapshot.owned {
        if !matches(pod) {
            // A set that is being deleted releases no pod: the garbage collector finds its pods by their owner.
            if !going {
                plan.release.push(pod.clone());
            }
        } else if is_active(pod) {
            plan.active.push(pod.clone());
        // `terminatingReplicas` (KEP-3973) leaves out pods that have ended: they hold no resources.
        } else if pod.header.is_deleting() && !pod.is_terminal() {
            plan.terminating += 1;
        }
    }
    for pod in snapshot
        .orphans
        .iter()
        .filter(|pod| !going && matches(pod) && is_active(pod))
    {
        plan.adopt.push(pod.clone());
        plan.active.push(pod.clone());
    }
}

fn scale<P: SetView>(snapshot: &Snapshot<P>, plan: &mut Plan) {
    let wanted = usize::try_from(snapshot.set.view().replicas).unwrap_or(0);
    let have = plan.active.len();
    if have < wanted {
        plan.create = (wanted - have).min(BURST_REPLICAS);
    } else if have > wanted {
        let mut ranked = plan.active.clone();
        rank(&mut ranked, &snapshot.siblings, snapshot.now);
        // The first ones of the rank are deleted; a larger surplus takes several reconciles, as upstream's
        // `BurstReplicas`.
        ranked.truncate((have - wanted).min(BURST_REPLICAS));
        plan.delete = ranked;
    }
}

fn next_available<P: SetView>(snapshot: &Snapshot<P>, active: &[PodRef]) -> Option<Timestamp> {
    let seconds = snapshot.set.view().min_ready_seconds;
    let ready = active.iter().filter(|pod| pod.ready);
    ready
        .filter_map(|pod| pod.available_at(seconds))
        .filter(|at| *at > snapshot.now)
        .min()
}
