//! Failures at an index, which its pods carry from one to the next. Pure.
//!
//! The last failed pod of an index keeps the finalizer until its successor is there: whatever deletes it, the successor
//! has its counts.

use super::backoff::finished_at;
use super::failure_policy::{Verdict, judge};
use super::has_finalizer;
use super::snapshot::{PodRef, Snapshot};
use super::tracking::{Tracked, has_failed, index_in_range, is_ending};
use crate::views::pod::is_active;
use k8s_openapi::api::batch::v1::PodFailurePolicy;
use std::collections::{BTreeMap, BTreeSet};

/// The last failed pod of each index that has one.
pub(super) fn last_failed(snapshot: &Snapshot) -> BTreeMap<u32, &PodRef> {
    let mut last: BTreeMap<u32, &PodRef> = BTreeMap::new();
    for pod in &snapshot.pods {
        let Some(index) = index_in_range(snapshot, pod).filter(|_| is_of_account(snapshot, pod)) else {
            continue;
        };
        let own = last.entry(index).or_insert(pod);
        if order(own) <= order(pod) {
            *own = pod;
        }
    }
    last
}

/// A pod that was released before it failed does not count.
fn is_of_account(snapshot: &Snapshot, pod: &PodRef) -> bool {
    has_finalizer(pod) && has_failed(snapshot, pod)
}

fn order(pod: &PodRef) -> (i32, jiff::Timestamp) {
    let all = pod.index_failures.saturating_add(pod.index_ignored_failures);
    (all, finished_at(pod))
}

/// Uids of failed pods that stay until their successors are there.
pub(super) fn awaiting_successors<'a>(snapshot: &'a Snapshot, tracked: &Tracked) -> BTreeSet<&'a str> {
    let job = &snapshot.job;
    if job.backoff_limit_per_index.is_none() || is_ending(job) || job.header.is_deleting() {
        return BTreeSet::new();
    }
    let active = snapshot.pods.iter().filter(|pod| is_active(pod));
    let active: BTreeSet<u32> = active.filter_map(|pod| pod.completion_index).collect();
    let decided = |index: &u32| tracked.completed.contains(index) || tracked.failed_indexes.contains(index);
    let failed = last_failed(snapshot).into_iter();
    failed
        .filter(|(index, _)| !active.contains(index) && !decided(index))
        .map(|(_, pod)| pod.uid().0.as_str())
        .collect()
}

/// The failures that the next pod of an index carries: those that count, and those that the policy ignores.
pub(super) fn counts_of_next(
    snapshot: &Snapshot,
    policy: Option<&PodFailurePolicy>,
    index: u32,
) -> (i32, i32) {
    let of_index = |pod: &&PodRef| pod.completion_index == Some(index) && is_of_account(snapshot, pod);
    let last = snapshot.pods.iter().filter(of_index);
    let Some(last) = last.max_by_key(|pod| order(pod)) else {
        return (0, 0);
    };
    let ignored = judge(policy, last).0 == Verdict::Ignore;
    (
        last.index_failures.saturating_add(i32::from(!ignored)),
        last.index_ignored_failures.saturating_add(i32::from(ignored)),
    )
}
