//! Pods that wait for a node.
//!
//! A pod is in one of four places. *Active*: to be tried, in the order of [`crate::active`].
//! *Backing off*: to be tried, but not yet. *Unschedulable*: rejected; it comes back when something happens that
//! the plugins which rejected it care about, or after a long while. *Gated*: not to be tried until it changes.
//! While a pod is tried or bound it is in none of them but stays known.

use crate::active::{ActivePods, Waiting};
use crate::framework::ClusterEvents;
use crate::pod::PodInfo;
use machinery_meta::ObjectKey;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// After the first failure; doubles with each further one.
pub const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
pub const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// A rejected pod is tried again after this long even if nothing seems to have happened.
pub const MAX_UNSCHEDULABLE: Duration = Duration::from_mins(5);

type TimeKey = (Duration, u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueuePosition {
    /// With its priority.
    Active(i32, Waiting),
    /// After a rejection; tried early when nothing else is to be tried.
    Backoff(TimeKey),
    /// After an error, which is never cut short.
    ErrorBackoff(TimeKey),
    Unschedulable(TimeKey),
    Gated,
    InFlight,
}

#[derive(Debug)]
struct Entry {
    pod: Arc<PodInfo>,
    place: QueuePosition,
    /// When the pod first became active; keeps its turn among equals.
    since: Duration,
    failures: u32,
    /// When the last attempt failed.
    failed_at: Duration,
    /// The failure was an error rather than a rejection: backing off is then not cut short.
    by_error: bool,
    wakes_on: ClusterEvents,
}

/// A pod taken to be tried.
#[derive(Debug, Clone)]
pub struct QueuedPod {
    pub pod: Arc<PodInfo>,
    pub attempts: u32,
}

#[derive(Debug, Default)]
pub struct Queue {
    entries: HashMap<ObjectKey, Entry>,
    active: ActivePods,
    backoff: BTreeMap<TimeKey, ObjectKey>,
    error_backoff: BTreeMap<TimeKey, ObjectKey>,
    unschedulable: BTreeMap<TimeKey, ObjectKey>,
    sequence: u64,
    /// What happened while pods were tried: their failure must not miss it.
    happened: ClusterEvents,
}

impl Queue {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether [`Self::pop`] would give a pod.
    pub fn has_next(&self, now: Duration) -> bool {
        !self.active.is_empty()
            || !self.backoff.is_empty()
            || due(&self.error_backoff, Duration::ZERO, now).is_some()
            || due(&self.unschedulable, MAX_UNSCHEDULABLE, now).is_some()
    }

    /// The pod that [`Self::pop`] would give.
    pub fn peek(&mut self, now: Duration) -> Option<&Arc<PodInfo>> {
        self.flush(now);
        let early = || self.backoff.first_key_value().map(|(_, key)| key);
        let key = self.active.first().or_else(early)?;
        self.entries.get(key).map(|entry| &entry.pod)
    }

    /// Charges the steps of an attempt at the pod to its namespace, whose next turn comes the later.
    pub fn charge(&mut self, pod: &PodInfo, steps: usize) {
        self.active.charge(pod.priority(), &pod.key.namespace, steps);
    }

    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.entries.contains_key(key)
    }

    /// A pod without a node was added or changed. `gated` pods are kept aside.
    pub fn set(&mut self, pod: Arc<PodInfo>, gated: bool, now: Duration) {
        let Some(entry) = self.entries.get_mut(&pod.key) else {
            let key = pod.key.clone();
            let entry = Entry {
                pod,
                place: QueuePosition::Gated,
                since: now,
                failures: 0,
                failed_at: Duration::ZERO,
                by_error: false,
                wakes_on: ClusterEvents::POD_SELF,
            };
            self.entries.insert(key.clone(), entry);
            if !gated {
                self.activate(&key, now);
            }
            return;
        };
        let key = pod.key.clone();
        let replaced = entry.pod.uid() != pod.uid();
        let changed = entry.pod.shape != pod.shape
            || !entry.pod.has_terms_of(&pod)
            || entry.pod.pod.metadata.labels != pod.pod.metadata.labels;
        let reordered = entry.pod.priority() != pod.priority();
        entry.pod = pod;
        match entry.place {
            _ if replaced => {
                if let Some(pod) = self.remove(&key) {
                    self.set(pod, gated, now);
                }
            }
            QueuePosition::Gated if !gated => self.activate(&key, now),
            QueuePosition::Unschedulable(_) if changed && entry.wakes_on.meets(ClusterEvents::POD_SELF) => {
                self.wake(&key, now);
            }
            QueuePosition::Active(..) if reordered => {
                self.leave(&key);
                self.activate(&key, now);
            }
            _ => {}
        }
    }

    /// The pod is gone, or has a node.
    pub fn remove(&mut self, key: &ObjectKey) -> Option<Arc<PodInfo>> {
        self.leave(key);
        self.entries.remove(key).map(|entry| entry.pod)
    }

    /// The next pod to try. When none is active, one that backs off after a rejection is tried early, as upstream
    /// does: the scheduler has nothing better to do.
    pub fn pop(&mut self, now: Duration) -> Option<QueuedPod> {
        self.flush(now);
        let key = match self.active.pop_first() {
            Some(key) => key,
            None => self.backoff.pop_first()?.1,
        };
        let entry = self.entries.get_mut(&key)?;
        entry.place = QueuePosition::InFlight;
        self.happened = ClusterEvents::NONE;
        Some(QueuedPod {
            pod: Arc::clone(&entry.pod),
            attempts: entry.failures + 1,
        })
    }

    /// No node fits the pod: it waits for one of the events.
    pub fn reject(&mut self, key: &ObjectKey, wakes_on: ClusterEvents, now: Duration) {
        let happened = self.happened;
        let Some(entry) = self.failed(key, now, false) else {
            return;
        };
        entry.wakes_on = wakes_on;
        if happened.meets(wakes_on) {
            self.wake(key, now);
            return;
        }
        let time = self.time_key(now);
        self.enter(key, QueuePosition::Unschedulable(time));
    }

    /// Placing or binding went wrong: it is tried again after backing off.
    pub fn retry(&mut self, key: &ObjectKey, now: Duration) {
        if self.failed(key, now, true).is_some() {
            self.wake(key, now);
        }
    }

    fn failed(&mut self, key: &ObjectKey, now: Duration, by_error: bool) -> Option<&mut Entry> {
        let entry = self
            .entries
            .get_mut(key)
            .filter(|entry| entry.place == QueuePosition::InFlight)?;
        entry.failures = entry.failures.saturating_add(1);
        entry.failed_at = now;
        entry.by_error = by_error;
        Some(entry)
    }

    /// Something happened: rejected pods that wait for it come back.
    pub fn happened(&mut self, events: ClusterEvents, now: Duration) {
        self.happened_to(events, now, |_| true);
    }

    /// Something happened that concerns some pods alone.
    pub fn happened_to(&mut self, events: ClusterEvents, now: Duration, concerns: impl Fn(&PodInfo) -> bool) {
        if events == ClusterEvents::NONE {
            return;
        }
        self.happened = self.happened.and(events);
        let waits = |key: &&ObjectKey| {
            self.entries
                .get(*key)
                .is_some_and(|entry| entry.wakes_on.meets(events) && concerns(&entry.pod))
        };
        let woken: Vec<ObjectKey> = self.unschedulable.values().filter(waits).cloned().collect();
        for key in woken {
            self.wake(&key, now);
        }
    }

    /// When to look again although nothing happened.
    pub fn next_wake(&self) -> Option<Duration> {
        let first = |pods: &BTreeMap<TimeKey, ObjectKey>| pods.first_key_value().map(|((time, _), _)| *time);
        let leftover = first(&self.unschedulable).map(|time| time + MAX_UNSCHEDULABLE);
        [first(&self.backoff), first(&self.error_backoff), leftover]
            .into_iter()
            .flatten()
            .min()
    }

    fn flush(&mut self, now: Duration) {
        let over = |queue: &Self| {
            let rejected = due(&queue.backoff, Duration::ZERO, now);
            rejected
                .or_else(|| due(&queue.error_backoff, Duration::ZERO, now))
                .cloned()
        };
        while let Some(key) = over(self) {
            self.leave(&key);
            self.activate(&key, now);
        }
        while let Some(key) = due(&self.unschedulable, MAX_UNSCHEDULABLE, now).cloned() {
            self.wake(&key, now);
        }
    }

    /// To the active pods, or to those backing off.
    fn wake(&mut self, key: &ObjectKey, now: Duration) {
        self.leave(key);
        let Some(entry) = self.entries.get(key) else {
            return;
        };
        let (due, by_error) = (entry.failed_at + backoff(entry.failures), entry.by_error);
        if due > now {
            let time = self.time_key(due);
            let place = if by_error {
                QueuePosition::ErrorBackoff(time)
            } else {
                QueuePosition::Backoff(time)
            };
            self.enter(key, place);
        } else {
            self.activate(key, now);
        }
    }

    fn activate(&mut self, key: &ObjectKey, now: Duration) {
        self.sequence += 1;
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        if entry.failures > 0 {
            entry.since = now;
        }
        let place = QueuePosition::Active(entry.pod.priority(), (entry.since, self.sequence));
        self.enter(key, place);
    }

    fn time_key(&mut self, time: Duration) -> TimeKey {
        self.sequence += 1;
        (time, self.sequence)
    }

    fn enter(&mut self, key: &ObjectKey, place: QueuePosition) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        entry.place = place;
        match place {
            QueuePosition::Active(priority, waiting) => self.active.insert(priority, waiting, key),
            QueuePosition::Gated | QueuePosition::InFlight => {}
            QueuePosition::Backoff(time) => drop(self.backoff.insert(time, key.clone())),
            QueuePosition::ErrorBackoff(time) => drop(self.error_backoff.insert(time, key.clone())),
            QueuePosition::Unschedulable(time) => drop(self.unschedulable.insert(time, key.clone())),
        }
    }

    fn leave(&mut self, key: &ObjectKey) {
        let place = self.entries.get(key).map(|entry| entry.place);
        match place {
            Some(QueuePosition::Active(priority, waiting)) => self.active.remove(priority, waiting, key),
            Some(QueuePosition::Backoff(time)) => drop(self.backoff.remove(&time)),
            Some(QueuePosition::ErrorBackoff(time)) => drop(self.error_backoff.remove(&time)),
            Some(QueuePosition::Unschedulable(time)) => drop(self.unschedulable.remove(&time)),
            Some(QueuePosition::Gated | QueuePosition::InFlight) | None => {}
        }
    }
}

/// The first pod, where it has waited so long beyond its time.
fn due(pods: &BTreeMap<TimeKey, ObjectKey>, wait: Duration, now: Duration) -> Option<&ObjectKey> {
    let ((time, _), key) = pods.first_key_value()?;
    Some(key).filter(|_| *time + wait <= now)
}

/// One second, doubled with each failure, at most ten.
fn backoff(failures: u32) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    INITIAL_BACKOFF
        .saturating_mul(1 << (failures - 1).min(16))
        .min(MAX_BACKOFF)
}
