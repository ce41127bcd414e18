//! Pods that wait for a node.
//!
//! A pod is in one of four places. *Active*: to be tried, in the order of [`crate::active`].
//! *Backing off*: to be tried, but not yet. *Unschedulable*: rejected; it comes back when something happens that
//! the plugins which rejected it care about, or after a long while. *Gated*: not to be tried until it changes.
//! While a pod is tried or bound it is in none of them but stays known.

use crate::active::{ActivePods, Waiting};
use crate::claim_users::ClaimUsers;
use crate::framework::{Change, ClusterEvents};
use crate::pod::PodInfo;
use crate::tallies::{
    ADDED, ATTEMPT_FAILED, BACKOFF_COMPLETE, POPPED_EARLY, QueueName, QueueTallies, TIMED_OUT, UPDATED,
};
use crate::unschedulable::{TimeKey, Unschedulable};
use crate::wakes::Wakes;
use machinery_meta::ObjectKey;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// A rejected pod is tried again after this long even if nothing seems to have happened.
pub const MAX_UNSCHEDULABLE: Duration = Duration::from_mins(5);

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

impl QueuePosition {
    /// `None` where it is tried.
    fn queue(self) -> Option<QueueName> {
        match self {
            Self::Active(..) => Some(QueueName::Active),
            Self::Backoff(_) | Self::ErrorBackoff(_) => Some(QueueName::Backoff),
            Self::Unschedulable(_) => Some(QueueName::Unschedulable),
            Self::Gated => Some(QueueName::Gated),
            Self::InFlight => None,
        }
    }
}

#[derive(Debug)]
struct Entry {
    pod: Arc<PodInfo>,
    place: QueuePosition,
    /// Time at which the pod first became active; keeps its turn among equals.
    since: Duration,
    failures: u32,
    /// Those that found no node, and errors since the last of them.
    unschedulable: u32,
    errors: u32,
    /// Time at which the last attempt failed.
    failed_at: Duration,
    /// The failure was an error rather than a rejection: backing off is then not cut short.
    by_error: bool,
    wakes_on: Wakes,
    /// Plugins that rejected the pod, or hold it back; none while it is tried.
    rejected_by: BTreeSet<&'static str>,
    first_tried: Option<Duration>,
    /// It comes back because it waited so long.
    timed_out: bool,
}

/// A pod taken to be tried.
#[derive(Debug, Clone)]
pub struct QueuedPod {
    pub pod: Arc<PodInfo>,
    pub attempts: u32,
    /// Beginning of the first attempt.
    pub first_tried: Duration,
    /// It came back because it had waited so long.
    pub timed_out: bool,
}

/// Times that a pod backs off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure; doubles with each further one.
    pub initial: Duration,
    pub most: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(1),
            most: Duration::from_secs(10),
        }
    }
}

/// Doublings after which a nanosecond is longer than any wait.
const MAX_DOUBLINGS: u32 = 128;

impl Backoff {
    /// The wait after so many failures to find a node, and errors since the last of them: errors begin anew.
    pub(crate) fn wait(self, unschedulable: u32, errors: u32) -> Duration {
        let failures = if errors > 0 { errors } else { unschedulable };
        if failures == 0 {
            return Duration::ZERO;
        }
        let mut wait = self.initial;
        for _ in 1..failures.min(MAX_DOUBLINGS) {
            wait = wait.saturating_mul(2);
        }
        wait.min(self.most)
    }
}

#[derive(Debug, Default)]
pub struct Queue {
    backing_off: Backoff,
    pub(crate) tallies: QueueTallies,
    entries: HashMap<ObjectKey, Entry>,
    claim_users: ClaimUsers,
    active: ActivePods,
    backoff: BTreeMap<TimeKey, ObjectKey>,
    error_backoff: BTreeMap<TimeKey, ObjectKey>,
    unschedulable: Unschedulable,
    sequence: u64,
    /// Events that came while pods were tried: their failure must not miss them.
    happened: ClusterEvents,
    /// Waiting pods that events were compared with.
    #[cfg(test)]
    compared: usize,
}

impl Queue {
    pub fn new(backing_off: Backoff) -> Self {
        Self {
            backing_off,
            ..Self::default()
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Reports whether [`Self::pop`] would return a pod.
    pub fn has_next(&self, now: Duration) -> bool {
        !self.active.is_empty()
            || !self.backoff.is_empty()
            || due(&self.error_backoff, Duration::ZERO, now).is_some()
            || due(self.unschedulable.by_time(), MAX_UNSCHEDULABLE, now).is_some()
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

    /// The pod as it was last seen.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Arc<PodInfo>> {
        self.entries.get(key).map(|entry| &entry.pod)
    }

    /// Reports whether this very pod is taken and not decided about.
    pub(crate) fn is_tried(&self, pod: &PodInfo) -> bool {
        let entry = self.entries.get(&pod.key);
        entry.is_some_and(|own| own.place == QueuePosition::InFlight && own.pod.uid() == pod.uid())
    }

    /// A pod without a node was added or changed. One that a plugin holds back, its `gate`, is kept aside.
    pub fn set(&mut self, pod: Arc<PodInfo>, gate: Option<&'static str>, now: Duration) {
        let Some(entry) = self.entries.get_mut(&pod.key) else {
            return self.add(pod, gate, now);
        };
        let key = pod.key.clone();
        let replaced = entry.pod.uid() != pod.uid();
        let has_other_claims = !entry.pod.has_device_claims_of(&pod);
        if has_other_claims {
            self.claim_users.file(&entry.pod, false);
            self.claim_users.file(&pod, true);
        }
        let changed = entry.pod.shape != pod.shape
            || !entry.pod.has_terms_of(&pod)
            || has_other_claims
            || entry.pod.pod.metadata.labels != pod.pod.metadata.labels;
        let reordered = entry.pod.priority() != pod.priority();
        let before = std::mem::replace(&mut entry.pod, pod);
        let own = Some(Change::Own(&before));
        match entry.place {
            _ if replaced => {
                if let Some(pod) = self.remove(&key) {
                    self.set(pod, gate, now);
                }
            }
            QueuePosition::Gated if gate.is_none() => {
                self.leave(&key);
                self.activate(&key, now, UPDATED);
            }
            QueuePosition::Unschedulable(_)
                if changed && entry.wakes_on.by(ClusterEvents::POD_SELF, &entry.pod, own) =>
            {
                self.wake(&key, now, ClusterEvents::POD_SELF.label());
            }
            // Its attempt looked at the pod as it was.
            QueuePosition::InFlight if changed => {
                self.happened = self.happened.and(ClusterEvents::POD_SELF);
            }
            QueuePosition::Active(..) if reordered => {
                self.leave(&key);
                self.activate(&key, now, UPDATED);
            }
            _ => {}
        }
    }

    fn add(&mut self, pod: Arc<PodInfo>, gate: Option<&'static str>, now: Duration) {
        let key = pod.key.clone();
        let entry = Entry {
            pod,
            place: QueuePosition::InFlight,
            since: now,
            failures: 0,
            unschedulable: 0,
            errors: 0,
            failed_at: Duration::ZERO,
            by_error: false,
            wakes_on: ClusterEvents::POD_SELF.into(),
            rejected_by: BTreeSet::new(),
            first_tried: None,
            timed_out: false,
        };
        self.claim_users.file(&entry.pod, true);
        self.entries.insert(key.clone(), entry);
        // It enters its place below.
        self.tallies.is_tried(1);
        self.leave(&key);
        match gate {
            None => self.activate(&key, now, ADDED),
            Some(gate) => {
                self.set_rejected_by(&key, BTreeSet::from([gate]));
                self.enter(&key, QueuePosition::Gated, ADDED);
            }
        }
    }

    /// Plugins that reject a pod, in place of those before.
    fn set_rejected_by(&mut self, key: &ObjectKey, plugins: BTreeSet<&'static str>) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let before = std::mem::replace(&mut entry.rejected_by, plugins);
        let all = [(&before, -1), (&entry.rejected_by, 1)];
        if all.iter().any(|(plugins, _)| !plugins.is_empty()) {
            let profile: Arc<str> = (*entry.pod.pod.spec.scheduler_name).into();
            for (plugins, more) in all {
                self.tallies.reject(plugins, &profile, more);
            }
        }
    }

    /// Pods that plugins hold back, of those that name the claim of devices.
    pub(crate) fn gated_users(&self, claim: &ObjectKey) -> Vec<Arc<PodInfo>> {
        let users = self.claim_users.of(claim);
        let users = users.iter().filter_map(|key| self.entries.get(key));
        let is_gated =
            |entry: &&Entry| entry.place == QueuePosition::Gated && entry.pod.uses_device_claim(claim);
        let gated = users.filter(is_gated);
        gated.map(|entry| Arc::clone(&entry.pod)).collect()
    }

    /// Something happened to a claim of devices: rejected pods that name it come back.
    pub(crate) fn happened_to_users(&mut self, claim: &ObjectKey, events: ClusterEvents, now: Duration) {
        self.happened = self.happened.and(events);
        for key in self.claim_users.of(claim) {
            let waits = self.entries.get(&key).is_some_and(|entry| {
                matches!(entry.place, QueuePosition::Unschedulable(_))
                    && entry.wakes_on.by(events, &entry.pod, None)
                    && entry.pod.uses_device_claim(claim)
            });
            if waits {
                self.wake(&key, now, events.label());
            }
        }
    }

    /// The pod is gone, or has a node.
    pub fn remove(&mut self, key: &ObjectKey) -> Option<Arc<PodInfo>> {
        self.set_rejected_by(key, BTreeSet::new());
        self.leave(key);
        let pod = self.entries.remove(key).map(|entry| entry.pod)?;
        self.claim_users.file(&pod, false);
        Some(pod)
    }

    /// The next pod to try. When none is active, one that backs off after a rejection is tried early, as upstream
    /// does: the scheduler has nothing better to do.
    pub fn pop(&mut self, now: Duration) -> Option<QueuedPod> {
        self.flush(now);
        let key = match self.active.pop_first() {
            Some(key) => key,
            None => {
                let (_, key) = self.backoff.pop_first()?;
                self.tallies.is_in(QueueName::Backoff, -1);
                self.tallies.is_in(QueueName::Active, 1);
                self.tallies.came(QueueName::Active, POPPED_EARLY);
                key
            }
        };
        self.tallies.is_in(QueueName::Active, -1);
        self.tallies.is_tried(1);
        self.set_rejected_by(&key, BTreeSet::new());
        self.happened = ClusterEvents::NONE;
        let entry = self.entries.get_mut(&key)?;
        entry.place = QueuePosition::InFlight;
        Some(QueuedPod {
            pod: Arc::clone(&entry.pod),
            attempts: entry.failures.saturating_add(1),
            first_tried: *entry.first_tried.get_or_insert(now),
            timed_out: entry.timed_out,
        })
    }

    /// No node fits the pod, as these plugins say: it waits for one of the events.
    pub fn reject(
        &mut self,
        key: &ObjectKey,
        plugins: BTreeSet<&'static str>,
        wakes_on: impl Into<Wakes>,
        now: Duration,
    ) {
        let wakes_on = wakes_on.into();
        let is_missed = self.happened.meets(wakes_on.events());
        let Some(entry) = self.failed(key, now, false) else {
            return;
        };
        entry.wakes_on = wakes_on;
        entry.timed_out = false;
        self.set_rejected_by(key, plugins);
        if is_missed {
            self.wake(key, now, ATTEMPT_FAILED);
            return;
        }
        self.leave(key);
        let time = self.time_key(now);
        self.enter(key, QueuePosition::Unschedulable(time), ATTEMPT_FAILED);
    }

    /// Placing or binding went wrong: it is tried again after backing off.
    pub fn retry(&mut self, key: &ObjectKey, now: Duration) {
        if let Some(entry) = self.failed(key, now, true) {
            entry.timed_out = false;
            self.wake(key, now, ATTEMPT_FAILED);
        }
    }

    fn failed(&mut self, key: &ObjectKey, now: Duration, by_error: bool) -> Option<&mut Entry> {
        let entry = self
            .entries
            .get_mut(key)
            .filter(|entry| entry.place == QueuePosition::InFlight)?;
        entry.failures = entry.failures.saturating_add(1);
        if by_error {
            entry.errors = entry.errors.saturating_add(1);
        } else {
            entry.unschedulable = entry.unschedulable.saturating_add(1);
            entry.errors = 0;
        }
        entry.failed_at = now;
        entry.by_error = by_error;
        Some(entry)
    }

    /// Something happened: rejected pods that wait for it come back.
    pub fn happened(&mut self, events: ClusterEvents, now: Duration) {
        self.wake_waiting(events, now, None, |_| true);
    }

    /// Something happened that concerns some pods alone.
    pub fn happened_to(&mut self, events: ClusterEvents, now: Duration, concerns: impl Fn(&PodInfo) -> bool) {
        self.wake_waiting(events, now, None, concerns);
    }

    /// An object changed: of the pods that wait for such events those come back that it may help, as their plugins judge.
    pub(crate) fn changed(&mut self, events: ClusterEvents, change: Change<'_>, now: Duration) {
        self.wake_waiting(events, now, Some(change), |_| true);
    }

    fn wake_waiting(
        &mut self,
        events: ClusterEvents,
        now: Duration,
        change: Option<Change<'_>>,
        concerns: impl Fn(&PodInfo) -> bool,
    ) {
        if events == ClusterEvents::NONE {
            return;
        }
        self.happened = self.happened.and(events);
        let waiting = self.unschedulable.waiting_for(events);
        #[cfg(test)]
        {
            self.compared += waiting.len();
        }
        let is_woken = |key: &&ObjectKey| {
            self.entries
                .get(*key)
                .is_some_and(|entry| concerns(&entry.pod) && entry.wakes_on.by(events, &entry.pod, change))
        };
        let woken: Vec<ObjectKey> = waiting.into_iter().filter(is_woken).cloned().collect();
        for key in woken {
            self.wake(&key, now, events.label());
        }
    }

    /// Reports whether the pod waits for an event.
    #[cfg(test)]
    pub(crate) fn is_unschedulable(&self, key: &ObjectKey) -> bool {
        let entry = self.entries.get(key);
        entry.is_some_and(|own| matches!(own.place, QueuePosition::Unschedulable(_)))
    }

    /// Takes the number of waiting pods that events were compared with since the last call.
    #[cfg(test)]
    pub(crate) fn take_compared(&mut self) -> usize {
        std::mem::take(&mut self.compared)
    }

    /// Time to look again although nothing happened.
    pub fn next_wake(&self) -> Option<Duration> {
        let first = |pods: &BTreeMap<TimeKey, ObjectKey>| pods.first_key_value().map(|((time, _), _)| *time);
        let leftover = first(self.unschedulable.by_time()).map(|time| time + MAX_UNSCHEDULABLE);
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
            self.activate(&key, now, BACKOFF_COMPLETE);
        }
        while let Some(key) = due(self.unschedulable.by_time(), MAX_UNSCHEDULABLE, now).cloned() {
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.timed_out = true;
            }
            self.wake(&key, now, TIMED_OUT);
        }
    }

    /// Moves a pod to the active pods, or to those backing off.
    fn wake(&mut self, key: &ObjectKey, now: Duration, event: &'static str) {
        self.leave(key);
        let Some(entry) = self.entries.get(key) else {
            return;
        };
        let wait = self.backing_off.wait(entry.unschedulable, entry.errors);
        let (due, by_error) = (entry.failed_at + wait, entry.by_error);
        if due > now {
            let time = self.time_key(due);
            let place = if by_error {
                QueuePosition::ErrorBackoff(time)
            } else {
                QueuePosition::Backoff(time)
            };
            self.enter(key, place, event);
        } else {
            self.activate(key, now, event);
        }
    }

    fn activate(&mut self, key: &ObjectKey, now: Duration, event: &'static str) {
        self.sequence += 1;
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        if entry.failures > 0 {
            entry.since = now;
        }
        let place = QueuePosition::Active(entry.pod.priority(), (entry.since, self.sequence));
        self.enter(key, place, event);
    }

    fn time_key(&mut self, time: Duration) -> TimeKey {
        self.sequence += 1;
        (time, self.sequence)
    }

    fn enter(&mut self, key: &ObjectKey, place: QueuePosition, event: &'static str) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        entry.place = place;
        let wakes_on = entry.wakes_on.events();
        match place.queue() {
            Some(queue) => {
                self.tallies.is_in(queue, 1);
                self.tallies.came(queue, event);
            }
            None => self.tallies.is_tried(1),
        }
        match place {
            QueuePosition::Active(priority, waiting) => self.active.insert(priority, waiting, key),
            QueuePosition::Gated | QueuePosition::InFlight => {}
            QueuePosition::Backoff(time) => drop(self.backoff.insert(time, key.clone())),
            QueuePosition::ErrorBackoff(time) => drop(self.error_backoff.insert(time, key.clone())),
            QueuePosition::Unschedulable(time) => self.unschedulable.insert(time, key, wakes_on),
        }
    }

    fn leave(&mut self, key: &ObjectKey) {
        let Some(entry) = self.entries.get(key) else {
            return;
        };
        let (place, wakes_on) = (entry.place, entry.wakes_on.events());
        match place.queue() {
            Some(queue) => self.tallies.is_in(queue, -1),
            None => self.tallies.is_tried(-1),
        }
        match place {
            QueuePosition::Active(priority, waiting) => self.active.remove(priority, waiting, key),
            QueuePosition::Backoff(time) => drop(self.backoff.remove(&time)),
            QueuePosition::ErrorBackoff(time) => drop(self.error_backoff.remove(&time)),
            QueuePosition::Unschedulable(time) => self.unschedulable.remove(time, wakes_on),
            QueuePosition::Gated | QueuePosition::InFlight => {}
        }
    }
}

/// The first pod, where it has waited so long beyond its time.
fn due(pods: &BTreeMap<TimeKey, ObjectKey>, wait: Duration, now: Duration) -> Option<&ObjectKey> {
    let ((time, _), key) = pods.first_key_value()?;
    Some(key).filter(|_| *time + wait <= now)
}
