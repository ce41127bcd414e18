//! Counts of the queue: pods by place, pods that came to a place by reason, plugins that reject.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Queues as metrics name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueName {
    Active,
    Backoff,
    Unschedulable,
    Gated,
}

const QUEUES: [&str; 4] = ["active", "backoff", "unschedulable", "gated"];

/// Reasons for which a pod comes to a queue that are no event of the cluster, as upstream labels them.
pub const ADDED: &str = "UnscheduledPodAdd";
pub const UPDATED: &str = "UnscheduledPodUpdate";
pub const ATTEMPT_FAILED: &str = "ScheduleAttemptFailure";
pub const BACKOFF_COMPLETE: &str = "BackoffComplete";
pub const POPPED_EARLY: &str = "PopFromBackoffQ";
pub const TIMED_OUT: &str = "UnschedulableTimeout";

type Rejectors = BTreeMap<(&'static str, Arc<str>), i64>;

/// See the module.
#[derive(Debug, Default)]
pub struct QueueTallies {
    lengths: [i64; QUEUES.len()],
    in_flight: i64,
    incoming: BTreeMap<(&'static str, &'static str), u64>,
    /// Waiting pods by plugin that rejected them and by profile.
    rejectors: Rejectors,
    changed: BTreeSet<(&'static str, Arc<str>)>,
}

impl QueueTallies {
    pub(crate) fn came(&mut self, queue: QueueName, event: &'static str) {
        let name = match queue {
            QueueName::Gated => QUEUES[QueueName::Unschedulable as usize],
            other => QUEUES[other as usize],
        };
        *self.incoming.entry((name, event)).or_default() += 1;
    }

    pub(crate) fn is_in(&mut self, queue: QueueName, more: i64) {
        self.lengths[queue as usize] += more;
    }

    pub(crate) fn is_tried(&mut self, more: i64) {
        self.in_flight += more;
    }

    /// Counts so many more pods of the profile that these plugins reject.
    pub(crate) fn reject(&mut self, plugins: &BTreeSet<&'static str>, profile: &Arc<str>, more: i64) {
        for plugin in plugins {
            let key = (*plugin, Arc::clone(profile));
            self.changed.insert(key.clone());
            let count = self.rejectors.entry(key).or_default();
            *count += more;
        }
    }

    /// Pods by queue.
    pub fn lengths(&self) -> impl Iterator<Item = (&'static str, i64)> {
        QUEUES.into_iter().zip(self.lengths)
    }

    /// Pods that are tried or bound.
    pub fn in_flight(&self) -> i64 {
        self.in_flight
    }

    /// Pods that came since the last call, by queue and reason.
    pub fn take_incoming(&mut self) -> BTreeMap<(&'static str, &'static str), u64> {
        std::mem::take(&mut self.incoming)
    }

    /// Rejected pods by plugin and profile, where they changed since the last call.
    pub fn take_changed_rejectors(&mut self) -> Rejectors {
        let changed = std::mem::take(&mut self.changed);
        let count = |key: &(&'static str, Arc<str>)| self.rejectors.get(key).copied().unwrap_or(0);
        let all = changed.into_iter().map(|key| {
            let count = count(&key);
            (key, count)
        });
        all.collect()
    }
}
