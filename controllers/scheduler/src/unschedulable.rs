//! Rejected pods, by the time since which they wait and by the events that they wait for.

use crate::cluster_events::ClusterEvents;
use machinery_meta::ObjectKey;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A moment, and a number that distinguishes equals.
pub(crate) type TimeKey = (Duration, u64);

/// Pods that wait for an event.
#[derive(Debug, Default)]
pub(crate) struct Unschedulable {
    by_time: BTreeMap<TimeKey, ObjectKey>,
    /// Pods by the place of each class of events.
    by_event: BTreeMap<ClusterEvents, BTreeSet<TimeKey>>,
}

impl Unschedulable {
    pub(crate) fn by_time(&self) -> &BTreeMap<TimeKey, ObjectKey> {
        &self.by_time
    }

    pub(crate) fn insert(&mut self, time: TimeKey, key: &ObjectKey, wakes_on: ClusterEvents) {
        self.by_time.insert(time, key.clone());
        for event in wakes_on.each() {
            self.by_event.entry(event).or_default().insert(time);
        }
    }

    /// Takes a pod out that was put in with these events.
    pub(crate) fn remove(&mut self, time: TimeKey, wakes_on: ClusterEvents) {
        self.by_time.remove(&time);
        for event in wakes_on.each() {
            if let Some(pods) = self.by_event.get_mut(&event) {
                pods.remove(&time);
                if pods.is_empty() {
                    self.by_event.remove(&event);
                }
            }
        }
    }

    /// Pods that wait for one of the events, the longest waiting first.
    pub(crate) fn waiting_for(&self, events: ClusterEvents) -> Vec<&ObjectKey> {
        let any = self.by_event.get(&ClusterEvents::of_any());
        let classes = events.each().filter_map(|event| self.by_event.get(&event));
        let times: BTreeSet<&TimeKey> = any.into_iter().chain(classes).flatten().collect();
        times
            .into_iter()
            .filter_map(|time| self.by_time.get(time))
            .collect()
    }
}
