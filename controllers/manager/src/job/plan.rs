//! Plan of a Job: pods to make and to delete, and its status. Pure.

use super::backoff::{Backoff, until_of_indexes};
use super::ending::{End, deadline, end};
use super::indexes;
use super::snapshot::{PodRef, Snapshot};
use super::tracking::{Tracked, completions, has_failed, has_succeeded, index_in_range, track};
use crate::pod_control::BURST_REPLICAS;
use crate::pod_progress::by_progress;
use crate::views::pod::is_active;
use crate::views::{Condition, JobStatus, find, seconds};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Actions of one round.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) status: JobStatus,
    /// Pods to make: an index for each of an indexed Job, nothing for each of another.
    pub(super) create: Vec<Option<u32>>,
    /// Pods to delete that are counted as they end.
    pub(super) delete: Vec<PodRef>,
    /// Pods to delete that count nowhere: their finalizer goes before.
    pub(super) discard: Vec<PodRef>,
    /// Pods to take the finalizer off, after status is written.
    pub(super) release: Vec<PodRef>,
    /// Good news or not, the reason and the message.
    pub(super) events: Vec<(bool, String, String)>,
    /// Action of this look, for metrics.
    pub(super) action: Action,
    /// Actions of the Job's policy for failed pods, one for each.
    pub(super) policy_actions: Vec<&'static str>,
    /// The moment of the next look, should nothing happen before.
    pub(super) requeue_at: Option<Timestamp>,
    /// For the next round.
    pub(super) backoff: Backoff,
}

/// Action of a look, as metrics name it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// It waits for what was requested earlier, or the Job is ending.
    #[default]
    Reconciling,
    /// There are as many pods as there should be.
    Tracking,
    /// There are too few.
    PodsCreated,
    /// There are too many.
    PodsDeleted,
}

impl Action {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Reconciling => "reconciling",
            Self::Tracking => "tracking",
            Self::PodsCreated => "pods_created",
            Self::PodsDeleted => "pods_deleted",
        }
    }
}

impl Plan {
    fn look_again(&mut self, at: Timestamp) {
        self.requeue_at = Some(self.requeue_at.map_or(at, |known| known.min(at)));
    }
}

/// Decides.
pub(super) fn plan(snapshot: &Snapshot) -> Plan {
    let job = &snapshot.job;
    let tracked = track(snapshot);
    let active: Vec<PodRef> = snapshot
        .pods
        .iter()
        .filter(|pod| is_active(pod))
        .cloned()
        .collect();
    let terminating = snapshot
        .pods
        .iter()
        .filter(|pod| pod.header.is_deleting() && !pod.is_terminal())
        .count();
    let mut plan = Plan {
        status: counts(snapshot, &tracked, &active, terminating),
        backoff: Backoff::after(snapshot),
        ..Plan::default()
    };
    plan.release.clone_from(&tracked.release);
    plan.policy_actions.clone_from(&tracked.policy_actions);
    if job.is_finished() {
        plan.status = job.status.clone();
        // A finished Job keeps no pod at work.
        plan.delete = active;
        return plan;
    }
    if plan.status.start_time.is_none() && !job.suspend {
        plan.status.start_time = Some(seconds(snapshot.now));
    }
    match end(snapshot, &tracked, &active) {
        Some(end) => finish(snapshot, &tracked, end, active, terminating, &mut plan),
        // One that is on its way out is counted to its end, and makes nothing.
        None if job.header.is_deleting() => {}
        None => work(snapshot, &tracked, &active, terminating, &mut plan),
    }
    plan
}

fn counts(snapshot: &Snapshot, tracked: &Tracked, active: &[PodRef], terminating: usize) -> JobStatus {
    let job = &snapshot.job;
    let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let mut status = JobStatus {
        active: number(active.len()),
        succeeded: tracked.succeeded,
        failed: tracked.failed,
        ready: Some(number(active.iter().filter(|pod| pod.ready).count())),
        terminating: Some(number(terminating)),
        uncounted_terminated_pods: Some(tracked.uncounted.clone()),
        ..job.status.clone()
    };
    if job.indexed {
        status.completed_indexes = indexes::format(&tracked.completed);
        if job.backoff_limit_per_index.is_some() {
            status.failed_indexes = Some(indexes::format(&tracked.failed_indexes));
        }
    }
    status
}

/// Says that the Job is to end, deletes what is at work, and says that it has ended once nothing is left.
fn finish(
    snapshot: &Snapshot,
    tracked: &Tracked,
    end: End,
    active: Vec<PodRef>,
    terminating: usize,
    plan: &mut Plan,
) {
    if !snapshot.settled {
        // There may be pods that are not seen: it ends when they are.
        plan.delete = active;
        return;
    }
    let (interim, terminal) = if end.failed {
        ("FailureTarget", "Failed")
    } else {
        ("SuccessCriteriaMet", "Complete")
    };
    set(&mut plan.status.conditions, interim, &end, snapshot.now);
    let listed = !tracked.uncounted.succeeded.is_empty() || !tracked.uncounted.failed.is_empty();
    let uncounted = listed || tracked.more || tracked.held > 0;
    if active.is_empty() && terminating == 0 && !uncounted {
        set(&mut plan.status.conditions, terminal, &end, snapshot.now);
        if end.failed {
            plan.events.push((false, end.reason, end.message));
        } else {
            plan.status.completion_time = Some(seconds(snapshot.now));
            plan.events
                .push((true, "Completed".to_owned(), "Job completed".to_owned()));
        }
    }
    plan.delete = active;
}

fn set(conditions: &mut Vec<Condition>, kind: &str, end: &End, now: Timestamp) {
    if find(conditions, kind).is_some_and(Condition::is_true) {
        return;
    }
    let mut new = Condition::new(kind, "True", &end.reason, &end.message, now);
    new.last_probe_time = Some(seconds(now));
    match conditions.iter_mut().find(|own| own.kind == kind) {
        Some(own) => *own = new,
        None => conditions.push(new),
    }
}

/// A Job that goes on: suspended, resumed, or at work. Pods that it has too many of have not failed.
fn work(snapshot: &Snapshot, tracked: &Tracked, active: &[PodRef], terminating: usize, plan: &mut Plan) {
    let job = &snapshot.job;
    plan.requeue_at = deadline(snapshot);
    if !snapshot.settled {
        return;
    }
    let was = find(&job.status.conditions, "Suspended").map(|own| own.is_true());
    if job.suspend != was.unwrap_or(false) {
        suspend_or_resume(snapshot, plan);
    }
    if job.suspend {
        plan.action = Action::PodsDeleted;
        plan.status.start_time = None;
    }
    let wanted = if job.suspend {
        0
    } else {
        wanted(snapshot, tracked, active.len())
    };
    plan.discard = surplus(snapshot, active, wanted);
    if !plan.discard.is_empty() {
        plan.action = Action::PodsDeleted;
    }
    if job.suspend || !plan.discard.is_empty() {
        return;
    }
    // Pods on their way out still count where only failed ones are replaced.
    let waits = job.replace_failed_only || job.failure_policy.is_some();
    let holding = if waits { terminating } else { 0 };
    let missing = wanted.saturating_sub(active.len() + holding).min(BURST_REPLICAS);
    if missing == 0 {
        plan.action = Action::Tracking;
    } else {
        plan.action = Action::PodsCreated;
        create(snapshot, tracked, active, missing, plan);
    }
}

/// Makes pods, where no failure is too recent: of the Job, or with a limit for each index of that index.
fn create(snapshot: &Snapshot, tracked: &Tracked, active: &[PodRef], missing: usize, plan: &mut Plan) {
    let job = &snapshot.job;
    let each = job.backoff_limit_per_index.is_some();
    let of_job = plan.backoff.until().filter(|at| !each && *at > snapshot.now);
    if let Some(at) = of_job {
        plan.look_again(at);
        return;
    }
    if !job.indexed {
        plan.create = vec![None; missing];
        return;
    }
    let of_indexes = if each {
        until_of_indexes(snapshot)
    } else {
        BTreeMap::new()
    };
    for index in free_indexes(snapshot, tracked, active, missing) {
        match of_indexes.get(&index).filter(|at| **at > snapshot.now) {
            Some(at) => plan.look_again(*at),
            None => plan.create.push(Some(index)),
        }
    }
}

fn suspend_or_resume(snapshot: &Snapshot, plan: &mut Plan) {
    let (value, reason, message, event) = if snapshot.job.suspend {
        ("True", "JobSuspended", "Job suspended", "Suspended")
    } else {
        plan.status.start_time = Some(seconds(snapshot.now));
        ("False", "JobResumed", "Job resumed", "Resumed")
    };
    let mut new = Condition::new("Suspended", value, reason, message, snapshot.now);
    new.last_probe_time = Some(seconds(snapshot.now));
    plan.status.conditions.retain(|own| own.kind != "Suspended");
    plan.status.conditions.push(new);
    plan.events.push((true, event.to_owned(), message.to_owned()));
}

/// Number of pods that are to be at work.
fn wanted(snapshot: &Snapshot, tracked: &Tracked, active: usize) -> usize {
    let job = &snapshot.job;
    let parallelism = usize::try_from(job.parallelism).unwrap_or(0);
    match job.completions {
        // A work queue: once one has done well no new ones are made.
        None if tracked.all_succeeded() > 0 => active,
        None => parallelism,
        Some(_) if job.indexed => {
            let decided = tracked.completed.union(&tracked.failed_indexes).count();
            parallelism.min((completions(snapshot) as usize).saturating_sub(decided))
        }
        Some(all) => parallelism.min(usize::try_from(all - tracked.all_succeeded()).unwrap_or(0)),
    }
}

/// Returns the pods that go where there are too many: of an Indexed Job those out of place, then those that have done least.
fn surplus(snapshot: &Snapshot, active: &[PodRef], wanted: usize) -> Vec<PodRef> {
    let mut rest = active.to_vec();
    rest.sort_by(|a, b| by_progress(a, b).then(a.completion_index.cmp(&b.completion_index)));
    let (mut going, rest) = if snapshot.job.indexed {
        out_of_place(snapshot, rest)
    } else {
        (Vec::new(), rest)
    };
    let excess = active.len().saturating_sub(wanted);
    let more = excess.saturating_sub(going.len());
    going.extend(rest.into_iter().take(more));
    going.truncate(BURST_REPLICAS);
    going
}

/// Splits pods in the order of what they have done: those at no index of the Job or at one at which another has done
/// more, and the others.
fn out_of_place(snapshot: &Snapshot, pods: Vec<PodRef>) -> (Vec<PodRef>, Vec<PodRef>) {
    let mut taken = BTreeSet::new();
    let mut is_right = |pod: &PodRef| index_in_range(snapshot, pod).is_some_and(|index| taken.insert(index));
    let (mut right, mut wrong): (Vec<PodRef>, Vec<PodRef>) =
        pods.into_iter().rev().partition(|pod| is_right(pod));
    right.reverse();
    wrong.reverse();
    (wrong, right)
}

pub(super) fn free_indexes(
    snapshot: &Snapshot,
    tracked: &Tracked,
    active: &[PodRef],
    missing: usize,
) -> Vec<u32> {
    let mut taken: BTreeSet<u32> = active.iter().filter_map(|pod| pod.completion_index).collect();
    taken.extend(&tracked.completed);
    taken.extend(&tracked.failed_indexes);
    // An index whose pod has ended and is not counted yet, or is still going, waits.
    let open = |pod: &&PodRef| !has_succeeded(pod) && !has_failed(snapshot, pod) && !is_active(pod);
    taken.extend(
        snapshot
            .pods
            .iter()
            .filter(open)
            .filter_map(|pod| pod.completion_index),
    );
    (0..completions(snapshot))
        .filter(|index| !taken.contains(index))
        .take(missing)
        .collect()
}
