//! The wait of a Job before it tries again after failures. Pure.
//!
//! A Job waits by the failures since its last success, which outlive their pods ([`Backoff`]); one with a limit for
//! each index waits at each index by the counts on its last failed pod.

use super::has_finalizer;
use super::index_failures::last_failed;
use super::snapshot::{PodRef, Snapshot};
use super::tracking::{has_failed, has_succeeded, is_in_range};
use crate::views::{PodView, time};
use jiff::{SignedDuration, Timestamp};
use machinery_client::Object;
use std::collections::{BTreeMap, BTreeSet};

/// The waits between new tries of a failing Job, doubling.
const BACKOFF_FIRST_SECONDS: i64 = 10;
const BACKOFF_LONGEST_SECONDS: i64 = 600;

/// The failures of a Job since its last success.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Backoff {
    pub(super) failures: u32,
    pub(super) last_failure: Option<Timestamp>,
    /// Pods that have been noted and still hold the finalizer.
    seen: BTreeSet<String>,
}

impl Backoff {
    /// A record of so many failures, the last of which was then.
    #[cfg(test)]
    pub(super) fn of(failures: u32, last_failure: Option<Timestamp>) -> Self {
        Self {
            failures,
            last_failure,
            seen: BTreeSet::new(),
        }
    }

    /// The record after this round. One that is not there (we have just begun) is read from the pods that have been
    /// counted.
    pub(super) fn after(snapshot: &Snapshot) -> Self {
        let ended = |pod: &PodRef| has_succeeded(pod) || has_failed(snapshot, pod);
        let held = |pod: &PodRef| has_finalizer(pod) && is_in_range(snapshot, pod) && ended(pod);
        let mut record = snapshot.backoff.clone().unwrap_or_else(|| {
            let counted = snapshot.pods.iter();
            let counted = counted.filter(|pod| !has_finalizer(pod) && pod.is_terminal());
            let mut record = Self::default();
            record.note(&counted.collect::<Vec<_>>());
            record
        });
        let held: Vec<&PodRef> = snapshot.pods.iter().filter(|pod| held(pod)).collect();
        let new = held.iter().filter(|pod| !record.seen.contains(&pod.uid().0));
        let new: Vec<&PodRef> = new.copied().collect();
        record.note(&new);
        record.seen = held.iter().map(|pod| pod.uid().0.clone()).collect();
        record
    }

    fn note(&mut self, ended: &[&PodRef]) {
        let times = |well: bool| {
            let of = ended.iter().filter(move |pod| has_succeeded(pod) == well);
            of.map(|pod| finished_at(pod))
        };
        let success = times(true).max();
        if success.is_some() {
            self.failures = 0;
            self.last_failure = None;
        }
        let later = times(false).filter(|at| success.is_none_or(|success| *at > success));
        let later: Vec<Timestamp> = later.collect();
        let more = u32::try_from(later.len()).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(more);
        self.last_failure = later.into_iter().max().or(self.last_failure);
    }

    /// Time until which the Job waits.
    pub(super) fn until(&self) -> Option<Timestamp> {
        wait_from(self.last_failure?, self.failures)
    }
}

/// Time until which each index waits whose pod has failed.
pub(super) fn until_of_indexes(snapshot: &Snapshot) -> BTreeMap<u32, Timestamp> {
    let of = |pod: &PodRef| {
        let failures = pod.index_failures.saturating_add(pod.index_ignored_failures);
        let failures = u32::try_from(failures.saturating_add(1)).unwrap_or(1);
        wait_from(finished_at(pod), failures)
    };
    let failed = last_failed(snapshot).into_iter();
    failed
        .filter_map(|(index, pod)| Some((index, of(pod)?)))
        .collect()
}

fn wait_from(last: Timestamp, failures: u32) -> Option<Timestamp> {
    let doublings = failures.checked_sub(1)?.min(10);
    let wait = BACKOFF_FIRST_SECONDS
        .saturating_mul(1 << doublings)
        .min(BACKOFF_LONGEST_SECONDS);
    last.checked_add(SignedDuration::from_secs(wait)).ok()
}

/// The moment at which a pod ended: its containers did, else it was no longer ready, else its deletion was requested.
pub(super) fn finished_at(pod: &Object<PodView>) -> Timestamp {
    let unready = || pod.readiness.filter(|own| own.is_false).and_then(|own| own.since);
    let deleted = || {
        let at = time(pod.header.deletion_timestamp.as_deref())?;
        let grace = SignedDuration::from_secs(pod.deletion_grace_seconds.unwrap_or(0));
        at.checked_sub(grace).ok()
    };
    pod.finished_at
        .or_else(unready)
        .or_else(deleted)
        .unwrap_or(pod.created)
}
