//! Moves pods that have ended into the Job's counts, each exactly once. Pure.
//!
//! ```text
//! ended, with finalizer  ->  its uid among the uncounted (written)  ->  finalizer off  ->  counted, uid off the list
//! ```
//! The uid is written before the finalizer goes, and the finalizer is gone before the count is written: however often
//! we stop in between, a pod is in exactly one of the three places.
//!
//! Successes of an Indexed Job need no list: its indexes that are completed are written before the finalizer goes, and
//! their number is the count.

use super::failure_policy::{Verdict, judge};
use super::index_failures::awaiting_successors;
use super::indexes;
use super::snapshot::{PodRef, Snapshot};
use super::{FINALIZER, has_finalizer};
use crate::views::job::UncountedTerminatedPods;
use crate::views::{Condition, JobStatus, JobView, Phase, find};
use machinery_client::Folded;
use std::collections::BTreeSet;

/// Uids on the list at most, and pods that completed an index of which one round takes the finalizer; more wait for the
/// next round.
const MAX_UNCOUNTED: usize = 500;

/// The counts after this round.
#[derive(Debug, Default)]
pub(super) struct Tracked {
    pub(super) succeeded: i32,
    pub(super) failed: i32,
    pub(super) uncounted: UncountedTerminatedPods,
    pub(super) completed: BTreeSet<u32>,
    pub(super) failed_indexes: BTreeSet<u32>,
    /// Pods whose finalizer may go once the list is written.
    pub(super) release: Vec<PodRef>,
    /// Reason why the whole Job fails, where a pod's end requires it.
    pub(super) fail_job: Option<String>,
    /// Failed pods that count towards the limit, the new ones among them.
    pub(super) new_failures: Vec<PodRef>,
    /// Actions of the policy's rules that matched failed pods.
    pub(super) policy_actions: Vec<&'static str>,
    /// Failures of pods that stay until their successors are there.
    pub(super) held: i32,
    /// Ended pods hold the finalizer that had no room on the list, or that need none as their index is completed.
    pub(super) more: bool,
}

impl Tracked {
    /// All successes, counted or on the list.
    pub(super) fn all_succeeded(&self) -> i32 {
        self.succeeded + count(self.uncounted.succeeded.len())
    }

    /// All failures, counted, on the list or held.
    pub(super) fn all_failed(&self) -> i32 {
        self.failed + count(self.uncounted.failed.len()) + self.held
    }
}

/// Tracks one round.
pub(super) fn track(snapshot: &Snapshot) -> Tracked {
    let (job, status) = (&snapshot.job, &snapshot.job.status);
    let completions = completions(snapshot);
    let mut tracked = Tracked {
        succeeded: status.succeeded,
        failed: status.failed,
        completed: indexes::parse(&status.completed_indexes, completions),
        failed_indexes: indexes::parse(status.failed_indexes.as_deref().unwrap_or(""), completions),
        ..Tracked::default()
    };
    settle_list(snapshot, status, &mut tracked);
    let listed = uids(status);
    // A long one is decoded once for all pods.
    let policy = job.failure_policy.as_ref().map(Folded::get);
    let mut failed = Vec::new();
    for pod in snapshot.pods.iter().filter(|pod| has_finalizer(pod)) {
        let counted = listed.contains(pod.uid().0.as_str());
        if counted || job.is_finished() || leaves_uncounted(job, pod) {
            tracked.release.push(pod.clone());
        } else if has_succeeded(pod) {
            note_success(snapshot, pod, &mut tracked);
        } else if has_failed(snapshot, pod) {
            let (verdict, action) = judge(policy.as_deref(), pod);
            tracked.policy_actions.extend(action);
            note_verdict(snapshot, pod, &verdict, &mut tracked);
            failed.push((pod, verdict));
        } else if job.header.is_deleting() {
            // Nothing is to hold back what goes with its Job.
            tracked.release.push(pod.clone());
        }
    }
    note_failures(snapshot, failed, &mut tracked);
    if job.indexed {
        // Indexes beyond the completions of a Job that was scaled down are none of its successes.
        tracked.succeeded = count(tracked.completed.len());
    }
    tracked
}

fn uids(status: &JobStatus) -> BTreeSet<&str> {
    let list = status.uncounted_terminated_pods.iter();
    let uids = list.flat_map(|list| list.succeeded.iter().chain(&list.failed));
    uids.map(String::as_str).collect()
}

pub(super) fn completions(snapshot: &Snapshot) -> u32 {
    u32::try_from(snapshot.job.completions.unwrap_or(0)).unwrap_or(0)
}

pub(super) fn has_succeeded(pod: &PodRef) -> bool {
    pod.phase == Phase::Succeeded
}

/// Failed, or on its way out before it could. Where only failed pods are replaced, the latter counts for a Job that
/// fails alone; for one that is done it does not.
pub(super) fn has_failed(snapshot: &Snapshot, pod: &PodRef) -> bool {
    let job = &snapshot.job;
    let waits = job.replace_failed_only || job.failure_policy.is_some();
    let counts = said(job, "FailureTarget") || !(waits || said(job, "SuccessCriteriaMet"));
    pod.phase == Phase::Failed || (counts && pod.header.is_deleting() && pod.phase != Phase::Succeeded)
}

/// Deleted because the Job is done without it.
fn leaves_uncounted(job: &JobView, pod: &PodRef) -> bool {
    said(job, "SuccessCriteriaMet") && pod.header.is_deleting() && !pod.is_terminal()
}

/// Reports whether the Job has a condition of its coming end.
pub(super) fn is_ending(job: &JobView) -> bool {
    said(job, "FailureTarget") || said(job, "SuccessCriteriaMet")
}

fn said(job: &JobView, kind: &str) -> bool {
    find(&job.status.conditions, kind).is_some_and(Condition::is_true)
}

/// The pod's index, where the Job has it.
pub(super) fn index_in_range(snapshot: &Snapshot, pod: &PodRef) -> Option<u32> {
    pod.completion_index
        .filter(|index| snapshot.job.indexed && *index < completions(snapshot))
}

/// Pods of an Indexed Job count at its indexes alone.
pub(super) fn is_in_range(snapshot: &Snapshot, pod: &PodRef) -> bool {
    !snapshot.job.indexed || index_in_range(snapshot, pod).is_some()
}

/// Uids whose pod has lost its finalizer move from the list into the counts.
fn settle_list(snapshot: &Snapshot, status: &JobStatus, tracked: &mut Tracked) {
    let Some(list) = &status.uncounted_terminated_pods else {
        return;
    };
    let with_finalizer = snapshot.pods.iter().filter(|pod| has_finalizer(pod));
    let with_finalizer: BTreeSet<&str> = with_finalizer.map(|pod| pod.uid().0.as_str()).collect();
    let held = |uid: &String| with_finalizer.contains(uid.as_str());
    for uid in &list.succeeded {
        if held(uid) {
            tracked.uncounted.succeeded.push(uid.clone())
        } else {
            tracked.succeeded += 1
        }
    }
    for uid in &list.failed {
        if held(uid) {
            tracked.uncounted.failed.push(uid.clone())
        } else {
            tracked.failed += 1
        }
    }
}

fn note_success(snapshot: &Snapshot, pod: &PodRef, tracked: &mut Tracked) {
    if snapshot.job.indexed {
        // The index counts, not the pod: a second success of an index adds nothing.
        tracked.completed.extend(index_in_range(snapshot, pod));
        tracked.more = true;
        if tracked.release.len() < MAX_UNCOUNTED {
            tracked.release.push(pod.clone());
        }
    } else if !is_full(tracked) {
        tracked.uncounted.succeeded.push(pod.uid().0.clone());
        tracked.release.push(pod.clone());
    }
}

/// Applies a failed pod's verdict to the Job and to its index. Pods that an ending Job has deleted do not count for their
/// indexes; those that failed before do.
fn note_verdict(snapshot: &Snapshot, pod: &PodRef, verdict: &Verdict, tracked: &mut Tracked) {
    let job = &snapshot.job;
    if let Verdict::FailJob(why) = verdict {
        tracked.fail_job.get_or_insert_with(|| why.clone());
    }
    let counts = pod.phase == Phase::Failed || !is_ending(job);
    let limit = job.backoff_limit_per_index.filter(|_| counts);
    let (Some(limit), Some(index)) = (limit, index_in_range(snapshot, pod)) else {
        return;
    };
    let fails = match verdict {
        Verdict::Ignore => false,
        Verdict::FailIndex => true,
        Verdict::Count | Verdict::FailJob(_) => pod.index_failures >= limit,
    };
    if fails {
        tracked.failed_indexes.insert(index);
    }
}

/// Puts failures on the list, but for those that a successor is to carry on.
fn note_failures(snapshot: &Snapshot, failed: Vec<(&PodRef, Verdict)>, tracked: &mut Tracked) {
    let held = awaiting_successors(snapshot, tracked);
    for (pod, verdict) in failed {
        let counts = verdict != Verdict::Ignore && is_in_range(snapshot, pod);
        if held.contains(pod.uid().0.as_str()) {
            tracked.held += i32::from(counts);
        } else if !counts {
            tracked.release.push(pod.clone());
        } else if !is_full(tracked) {
            tracked.new_failures.push(pod.clone());
            tracked.uncounted.failed.push(pod.uid().0.clone());
            tracked.release.push(pod.clone());
        }
    }
}

fn is_full(tracked: &mut Tracked) -> bool {
    let full = tracked.uncounted.succeeded.len() + tracked.uncounted.failed.len() >= MAX_UNCOUNTED;
    tracked.more |= full;
    full
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// The finalizers a pod keeps.
pub(super) fn without_finalizer(pod: &PodRef) -> Vec<String> {
    pod.header
        .finalizers
        .iter()
        .filter(|own| &***own != FINALIZER)
        .map(ToString::to_string)
        .collect()
}
