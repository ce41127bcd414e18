//! Is the Job done, failed, suspended; which pods are to be made or deleted; what does status say. Pure.

use super::indexes::{self, Ranges};
use super::tracking::{Tracked, completions, has_failed, has_succeeded, track};
use crate::pod_control::BURST_REPLICAS;
use crate::views::pod::is_active;
use crate::views::{Condition, JobStatus, JobView, Phase, PodView, find, seconds, time};
use jiff::{SignedDuration, Timestamp};
use machinery_client::Folded;
use machinery_client::Object;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) type PodRef = Arc<Object<PodView>>;

/// What a plan is made of.
pub(super) struct Snapshot {
    pub(super) job: Arc<Object<JobView>>,
    pub(super) pods: Vec<PodRef>,
    /// Whether everything asked for earlier has been seen.
    pub(super) settled: bool,
    pub(super) now: Timestamp,
}

/// What is to be done.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) status: JobStatus,
    /// Pods to make: an index for each of an indexed Job, nothing for each of another.
    pub(super) create: Vec<Option<u32>>,
    pub(super) delete: Vec<PodRef>,
    /// Pods to take the finalizer off, after status is written.
    pub(super) release: Vec<PodRef>,
    /// Good news or not, the reason and the message.
    pub(super) events: Vec<(bool, String, String)>,
    /// Action of this look, for metrics.
    pub(super) action: Action,
    /// Actions of the Job's policy for failed pods, one for each.
    pub(super) policy_actions: Vec<&'static str>,
    /// When to look again, should nothing happen before.
    pub(super) requeue_at: Option<Timestamp>,
}

/// Action of a look, as metrics name it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// It waits for what was asked for earlier, or the Job is ending.
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

/// The waits between new tries of a failing Job, doubling.
const BACKOFF_FIRST_SECONDS: i64 = 10;
const BACKOFF_LONGEST_SECONDS: i64 = 600;

/// Why a Job ends.
struct End {
    /// `Failed`, else `Complete`.
    failed: bool,
    reason: String,
    message: String,
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
        ..Plan::default()
    };
    plan.release.clone_from(&tracked.release);
    plan.policy_actions.clone_from(&tracked.policy_actions);
    if job.is_finished() || job.header.is_deleting() {
        plan.status.conditions.clone_from(&job.status.conditions);
        // A finished Job keeps no pod at work.
        plan.delete = if job.is_finished() { active } else { Vec::new() };
        return plan;
    }
    if plan.status.start_time.is_none() && !job.suspend {
        plan.status.start_time = Some(seconds(snapshot.now));
    }
    match end(snapshot, &tracked, &active) {
        Some(end) => finish(snapshot, &tracked, end, active, terminating, &mut plan),
        None => work(snapshot, &tracked, active, terminating, &mut plan),
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

/// Whether the Job is to end, and how; one that was said to end goes on ending.
fn end(snapshot: &Snapshot, tracked: &Tracked, active: &[PodRef]) -> Option<End> {
    let job = &snapshot.job;
    for (kind, failed) in [("FailureTarget", true), ("SuccessCriteriaMet", false)] {
        if let Some(own) = find(&job.status.conditions, kind).filter(|own| own.is_true()) {
            return Some(End {
                failed,
                reason: own.reason.clone(),
                message: own.message.clone(),
            });
        }
    }
    let failed = |reason: &str, message: String| {
        Some(End {
            failed: true,
            reason: reason.to_owned(),
            message,
        })
    };
    if let Some(why) = &tracked.fail_job {
        return failed("PodFailurePolicy", why.clone());
    }
    if let Some(end) = success(snapshot, tracked, active) {
        return Some(end);
    }
    if tracked.all_failed() > job.backoff_limit || restarts_too_often(snapshot) {
        return failed(
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit".to_owned(),
        );
    }
    if deadline(snapshot).is_some_and(|at| at <= snapshot.now) {
        return failed(
            "DeadlineExceeded",
            "Job was active longer than specified deadline".to_owned(),
        );
    }
    let failed_indexes = i32::try_from(tracked.failed_indexes.len()).unwrap_or(i32::MAX);
    if job.max_failed_indexes.is_some_and(|max| failed_indexes > max) {
        let message = "Job has exceeded the specified maximal number of failed indexes".to_owned();
        return failed("MaxFailedIndexesExceeded", message);
    }
    let decided = tracked.completed.union(&tracked.failed_indexes).count();
    if failed_indexes > 0
        && job
            .completions
            .is_some_and(|all| usize::try_from(all).is_ok_and(|all| decided >= all))
    {
        return failed("FailedIndexes", "Job has failed indexes".to_owned());
    }
    None
}

/// Whether containers that start again where they ended badly have used up the tries. A pod that is on its way out
/// for that reason still says so.
fn restarts_too_often(snapshot: &Snapshot) -> bool {
    let limit = snapshot.job.backoff_limit;
    let there = snapshot
        .pods
        .iter()
        .filter(|pod| matches!(pod.phase, Phase::Pending | Phase::Running));
    let restarts = there.fold(0_i32, |sum, pod| sum.saturating_add(pod.restarts_together));
    // Where no failure is granted, the first restart is one too many.
    snapshot.job.restarts_on_failure && restarts >= limit.max(1)
}

fn success(snapshot: &Snapshot, tracked: &Tracked, active: &[PodRef]) -> Option<End> {
    let job = &snapshot.job;
    let policy = job.success_policy.as_ref().map(Folded::get);
    let policy = policy.as_deref().and_then(|policy| {
        let rules = policy.rules.iter().enumerate();
        rules.into_iter().find(|(_, rule)| {
            let all = completions(snapshot);
            let wanted = rule
                .succeeded_indexes
                .as_ref()
                .map(|text| Ranges::parse(text, all));
            let met = match &wanted {
                Some(wanted) => wanted.count_in(&tracked.completed),
                None => tracked.completed.len(),
            };
            match (rule.succeeded_count, &wanted) {
                (Some(count), _) => usize::try_from(count).is_ok_and(|count| met >= count),
                (None, Some(wanted)) => u64::try_from(met).is_ok_and(|met| met == wanted.len()),
                (None, None) => false,
            }
        })
    });
    if let Some((at, _)) = policy {
        let message = format!("Matched rules at index {at}");
        return Some(End {
            failed: false,
            reason: "SuccessPolicy".to_owned(),
            message,
        });
    }
    let done = match job.completions {
        None => tracked.all_succeeded() > 0 && active.is_empty(),
        Some(_) if job.indexed => tracked.completed.len() >= completions(snapshot) as usize,
        Some(all) => tracked.all_succeeded() >= all && (all > 0 || active.is_empty()),
    };
    done.then(|| End {
        failed: false,
        reason: "CompletionsReached".to_owned(),
        message: "Reached expected number of succeeded pods".to_owned(),
    })
}

fn deadline(snapshot: &Snapshot) -> Option<Timestamp> {
    let job = &snapshot.job;
    let seconds = job.active_deadline_seconds.filter(|_| !job.suspend)?;
    let start = time(job.status.start_time.as_deref())?;
    start.checked_add(SignedDuration::from_secs(seconds)).ok()
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
    let (interim, terminal) = if end.failed {
        ("FailureTarget", "Failed")
    } else {
        ("SuccessCriteriaMet", "Complete")
    };
    set(&mut plan.status.conditions, interim, &end, snapshot.now);
    let uncounted =
        !tracked.uncounted.succeeded.is_empty() || !tracked.uncounted.failed.is_empty() || tracked.more;
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
    conditions.retain(|own| own.kind != kind);
    conditions.push(new);
}

/// A Job that goes on: suspended, resumed, or at work.
fn work(snapshot: &Snapshot, tracked: &Tracked, active: Vec<PodRef>, terminating: usize, plan: &mut Plan) {
    let job = &snapshot.job;
    let was = find(&job.status.conditions, "Suspended").map(|own| own.is_true());
    if job.suspend != was.unwrap_or(false) {
        suspend_or_resume(snapshot, plan);
    }
    plan.requeue_at = deadline(snapshot);
    if job.suspend {
        plan.delete = active;
        plan.action = Action::PodsDeleted;
        plan.status.start_time = None;
        return;
    }
    if !snapshot.settled {
        return;
    }
    let wanted = wanted(snapshot, tracked, active.len());
    if active.len() > wanted {
        plan.delete = surplus(active, wanted);
        plan.action = Action::PodsDeleted;
        return;
    }
    // Pods on their way out still count where only failed ones are replaced.
    let holding = if job.replace_failed_only || job.failure_policy.is_some() {
        terminating
    } else {
        0
    };
    let missing = wanted.saturating_sub(active.len() + holding).min(BURST_REPLICAS);
    if missing == 0 {
        plan.action = Action::Tracking;
        return;
    }
    plan.action = Action::PodsCreated;
    if let Some(at) = backoff_until(snapshot, tracked).filter(|at| *at > snapshot.now) {
        plan.requeue_at = Some(plan.requeue_at.map_or(at, |known| known.min(at)));
        return;
    }
    plan.create = if job.indexed {
        free_indexes(snapshot, tracked, &active, missing)
    } else {
        vec![None; missing]
    };
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

/// How many pods are to be at work.
fn wanted(snapshot: &Snapshot, tracked: &Tracked, active: usize) -> usize {
    let job = &snapshot.job;
    let parallelism = usize::try_from(job.parallelism).unwrap_or(0);
    match job.completions {
        // A work queue: once one has done well no new ones are made.
        None if tracked.all_succeeded() > 0 => active.min(parallelism),
        None => parallelism,
        Some(_) if job.indexed => {
            let decided = tracked.completed.union(&tracked.failed_indexes).count();
            parallelism.min((completions(snapshot) as usize).saturating_sub(decided))
        }
        Some(all) => parallelism.min(usize::try_from(all - tracked.all_succeeded()).unwrap_or(0)),
    }
}

/// Which pods go when there are too many: those that have done least.
fn surplus(mut active: Vec<PodRef>, wanted: usize) -> Vec<PodRef> {
    active.sort_by_key(|pod| {
        (
            !pod.node.is_empty(),
            pod.phase,
            pod.ready,
            std::cmp::Reverse(pod.completion_index),
            std::cmp::Reverse(pod.created),
        )
    });
    let excess = active.len() - wanted;
    active.truncate(excess.min(BURST_REPLICAS));
    active
}

fn free_indexes(
    snapshot: &Snapshot,
    tracked: &Tracked,
    active: &[PodRef],
    missing: usize,
) -> Vec<Option<u32>> {
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
        .map(Some)
        .collect()
}

/// Until when a Job with failures waits before it tries again.
fn backoff_until(snapshot: &Snapshot, tracked: &Tracked) -> Option<Timestamp> {
    let failed: Vec<&PodRef> = snapshot
        .pods
        .iter()
        .filter(|pod| has_failed(snapshot, pod))
        .collect();
    let last = failed
        .iter()
        .map(|pod| pod.finished_at.unwrap_or(pod.created))
        .max()?;
    let succeeded_since = snapshot
        .pods
        .iter()
        .filter(|pod| has_succeeded(pod))
        .filter_map(|pod| pod.finished_at)
        .max();
    if succeeded_since.is_some_and(|since| since > last) {
        return None;
    }
    let failures = u32::try_from(tracked.all_failed().max(1)).unwrap_or(1);
    let wait = BACKOFF_FIRST_SECONDS
        .saturating_mul(1 << (failures - 1).min(10))
        .min(BACKOFF_LONGEST_SECONDS);
    last.checked_add(SignedDuration::from_secs(wait)).ok()
}
