//! The end of a Job: its reason, and whether it failed. Pure.

use super::indexes::Ranges;
use super::snapshot::{PodRef, Snapshot};
use super::tracking::{Tracked, completions};
use crate::views::{Phase, find, time};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{SuccessPolicy, SuccessPolicyRule};
use machinery_client::Folded;
use std::collections::BTreeSet;

/// Reason for which a Job ends.
pub(super) struct End {
    /// `Failed`, else `Complete`.
    pub(super) failed: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

/// Returns the end of the Job, where it has one; one with a condition of its end goes on ending. Failures count before success.
pub(super) fn end(snapshot: &Snapshot, tracked: &Tracked, active: &[PodRef]) -> Option<End> {
    said(snapshot)
        .or_else(|| failure(snapshot, tracked))
        .or_else(|| failed_indexes(snapshot, tracked))
        .or_else(|| success(snapshot, tracked, active))
}

fn said(snapshot: &Snapshot) -> Option<End> {
    let kinds = [("SuccessCriteriaMet", false), ("FailureTarget", true)];
    kinds.into_iter().find_map(|(kind, failed)| {
        let own = find(&snapshot.job.status.conditions, kind).filter(|own| own.is_true())?;
        Some(End {
            failed,
            reason: own.reason.clone(),
            message: own.message.clone(),
        })
    })
}

fn failed(reason: &str, message: impl Into<String>) -> Option<End> {
    Some(End {
        failed: true,
        reason: reason.to_owned(),
        message: message.into(),
    })
}

fn failure(snapshot: &Snapshot, tracked: &Tracked) -> Option<End> {
    if let Some(why) = &tracked.fail_job {
        return failed("PodFailurePolicy", why.clone());
    }
    if tracked.all_failed() > snapshot.job.backoff_limit || restarts_too_often(snapshot) {
        return failed(
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit",
        );
    }
    if deadline(snapshot).is_some_and(|at| at <= snapshot.now) {
        return failed(
            "DeadlineExceeded",
            "Job was active longer than specified deadline",
        );
    }
    None
}

fn failed_indexes(snapshot: &Snapshot, tracked: &Tracked) -> Option<End> {
    let job = &snapshot.job;
    let failed_indexes = i32::try_from(tracked.failed_indexes.len()).unwrap_or(i32::MAX);
    if job.max_failed_indexes.is_some_and(|max| failed_indexes > max) {
        return failed(
            "MaxFailedIndexesExceeded",
            "Job has exceeded the specified maximal number of failed indexes",
        );
    }
    let decided = tracked.completed.union(&tracked.failed_indexes).count();
    let all = job.completions.and_then(|all| usize::try_from(all).ok());
    if failed_indexes > 0 && all.is_some_and(|all| decided >= all) {
        return failed("FailedIndexes", "Job has failed indexes");
    }
    None
}

/// Reports whether containers that restart on failure have used up the tries. A pod that is on its way out
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
    let met = policy
        .as_deref()
        .and_then(|own| met_rule(own, &tracked.completed, completions(snapshot)));
    if let Some(at) = met {
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

/// The first rule of the policy that these indexes meet: with enough of the rule's indexes, or with all of them.
pub(super) fn met_rule(policy: &SuccessPolicy, succeeded: &BTreeSet<u32>, completions: u32) -> Option<usize> {
    let enough = |met: usize, count: Option<i32>| {
        count.is_some_and(|count| usize::try_from(count).is_ok_and(|count| met >= count))
    };
    let is_met = |rule: &SuccessPolicyRule| match &rule.succeeded_indexes {
        Some(text) => {
            let wanted = Ranges::parse(text, completions);
            let met = wanted.count_in(succeeded);
            let all = u64::try_from(met).is_ok_and(|met| met == wanted.len());
            wanted.len() > 0 && (all || enough(met, rule.succeeded_count))
        }
        None => enough(succeeded.len(), rule.succeeded_count),
    };
    let met = policy.rules.iter().position(is_met);
    met.filter(|_| !succeeded.is_empty())
}

/// The moment from which a Job has been active for too long.
pub(super) fn deadline(snapshot: &Snapshot) -> Option<Timestamp> {
    let job = &snapshot.job;
    let seconds = job.active_deadline_seconds.filter(|_| !job.suspend)?;
    let start = time(job.status.start_time.as_deref())?;
    start.checked_add(SignedDuration::from_secs(seconds)).ok()
}
