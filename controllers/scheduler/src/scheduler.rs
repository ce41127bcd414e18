//! The scheduler as a value: changes go in, decisions come out.

use crate::algorithm::{Extenders, Nominations, Placement};
use crate::asking::{Asking, devices_error};
use crate::attempt::Attempt;
use crate::config::Configuration;
use crate::decision::Decision;
use crate::devices::reservation::reserve as reserve_devices;
use crate::extender::Interests;
use crate::framework::{Change, ClusterEvents, NodeState};
use crate::measuring::Measuring;
use crate::meter::{Clock, ExtensionPoint, Meter, SUCCESS};
use crate::metrics::{AttemptResult, Metrics};
use crate::nodes::{NodeChange, NodeId, NodeTable};
use crate::object::{LabelSelector, Labels, Node};
use crate::owner_selectors::OwnerKind;
use crate::pod::PodInfo;
use crate::policy::assumed_usage;
use crate::post_filter::DryRunOf;
use crate::preemption::{Budget, Budgets};
use crate::profile::{Profile, Profiles};
use crate::queue::{Backoff, Queue};
use crate::tallies::{ADDED, UPDATED};
use crate::volumes::Reservation;
use crate::volumes::reservation::reserve;
use crate::volumes::scheduling::BindingPods;
use jiff::Timestamp;
use machinery_meta::ObjectKey;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Decisions before changes are looked at again.
const BURST: usize = 16;
/// Steps of attempts after which a burst ends early: a few milliseconds. The attempt that reaches them is finished.
pub(crate) const BURST_STEPS: usize = 65_536;

/// The scheduler of pods that name none.
pub const SCHEDULER_NAME: &str = "default-scheduler";

/// Nodes, waiting pods, and what was decided but not yet seen.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) nodes: NodeTable,
    pub(crate) queue: Queue,
    pub(crate) profiles: Profiles,
    pub(crate) measuring: Measuring,
    pub(crate) nominations: Nominations,
    pub(crate) budgets: Budgets,
    /// Pods being bound, by key, with their uid: their node is decided although the API does not say so yet.
    assumed: HashMap<ObjectKey, Box<str>>,
    pub(crate) binding: BindingPods,
    /// Steps of the attempts of this burst; see [`Attempt`].
    pub(crate) steps: usize,
    /// The attempt whose dry run of preemption goes on in the next burst.
    pub(crate) dry_run: Option<DryRunOf>,
    pub(crate) extenders: Interests,
    /// The attempt that waits for an answer of extenders.
    pub(crate) asking: Option<Asking>,
}

impl Default for Scheduler {
    fn default() -> Self {
        Self::new(&Configuration::default())
    }
}

impl Scheduler {
    pub fn new(configuration: &Configuration) -> Self {
        let backoff = Backoff {
            initial: configuration.pod_initial_backoff,
            most: configuration.pod_max_backoff,
        };
        Self {
            nodes: NodeTable::default(),
            queue: Queue::new(backoff),
            profiles: Profiles::new(configuration),
            measuring: Measuring::default(),
            nominations: Nominations::default(),
            budgets: Budgets::new(),
            assumed: HashMap::new(),
            binding: BindingPods::default(),
            steps: 0,
            dry_run: None,
            extenders: Interests::new(&configuration.extenders),
            asking: None,
        }
    }

    /// The same with what it does measured.
    #[must_use]
    pub fn measured(self, metrics: &Metrics, clock: Clock) -> Self {
        Self {
            measuring: Measuring::new(metrics.clone(), clock),
            ..self
        }
    }

    /// Hands on to the metrics what was counted since the last call.
    pub fn publish(&mut self) {
        let assumed = self.assumed.len();
        self.measuring
            .publish(&mut self.queue, &self.nodes, &self.profiles, assumed);
    }

    /// Time that the claims of a pod have to be bound.
    pub(crate) fn bind_timeout(&self, pod: &PodInfo) -> Duration {
        self.profile_of(pod)
            .map_or(Duration::ZERO, |profile| profile.bind_timeout)
    }

    /// Time that a pod waits for conditions of its devices.
    pub(crate) fn binding_timeout(&self, pod: &PodInfo) -> Duration {
        self.profile_of(pod)
            .map_or(Duration::ZERO, |profile| profile.binding_timeout)
    }

    pub(crate) fn profile_of(&self, pod: &PodInfo) -> Option<&Profile> {
        self.profiles.get(&pod.pod.spec.scheduler_name)
    }

    /// A pod changed; `None` when it is gone or has ended.
    pub fn pod_changed(&mut self, key: &ObjectKey, pod: Option<&Arc<PodInfo>>, now: Duration) {
        let Some(pod) = pod.filter(|pod| !pod.pod.is_terminal()) else {
            return self.pod_gone(key, now);
        };
        if let Some(node) = pod.node_name() {
            return self.placed(pod, node, now);
        }
        if self.is_assumed(pod) {
            // Should binding fail, the pod is tried again as it is by then.
            if self.queue.is_tried(pod) {
                self.queue.set(Arc::clone(pod), None, now);
            }
            return;
        }
        if self.nodes.node_of(key).is_some() {
            // Another pod of this name was on a node.
            self.pod_gone(key, now);
        }
        let profile = self.profile_of(pod).filter(|_| !pod.pod.is_deleting());
        let Some(profile) = profile else {
            self.waits_no_more(key);
            return;
        };
        let gate = profile.algorithm.plugins().gate(pod, &self.nodes);
        let nominated = &pod.pod.status.nominated_node_name;
        if !nominated.is_empty() && !self.queue.contains(key) {
            self.nominations.add(pod, nominated);
        }
        self.nominations.renew(pod);
        self.queue.set(Arc::clone(pod), gate, now);
    }

    /// A pod on a node came or changed. One that was assumed there comes when the API says so, as upstream has it.
    fn placed(&mut self, pod: &Arc<PodInfo>, node: &str, now: Duration) {
        let was_assumed = self.assumed.contains_key(&pod.key);
        self.waits_no_more(&pod.key);
        let was_here = self.nodes.node_of(&pod.key) == Some(node);
        let before = self.nodes.placed(&pod.key).cloned();
        self.nodes.set_pod(pod, node);
        let is_same = |own: &&Arc<PodInfo>| was_here && own.uid() == pod.uid();
        let updated = before.as_ref().filter(is_same).filter(|_| !was_assumed);
        if updated.is_none() && !was_assumed && before.is_some() {
            self.pod_changed_for_others(ClusterEvents::POD_GONE, before.as_deref(), None, now);
        }
        let events = updated.map_or(ClusterEvents::POD_PLACED, |own| updates_of(own, pod));
        let before = updated.map(|own| &**own);
        self.pod_changed_for_others(events, before, Some(pod), now);
    }

    fn pod_changed_for_others(
        &mut self,
        events: ClusterEvents,
        before: Option<&PodInfo>,
        after: Option<&PodInfo>,
        now: Duration,
    ) {
        let nodes = &self.nodes;
        let change = Change::Placed { before, after, nodes };
        self.queue.changed(events, change, now);
    }

    fn waits_no_more(&mut self, key: &ObjectKey) {
        self.assumed.remove(key);
        if self.binding.waiting.remove(key).is_some() {
            self.measuring.forget(key);
        }
        if let Some(pod) = self.queue.remove(key) {
            self.nominations.remove(&pod);
        }
    }

    fn pod_gone(&mut self, key: &ObjectKey, now: Duration) {
        let is_nominated = |pod: &&Arc<PodInfo>| self.nominations.node_of(pod).is_some();
        let nominated = self.queue.get(key).filter(is_nominated).cloned();
        self.waits_no_more(key);
        if let Some(pod) = nominated {
            // The room that it was given is free again.
            self.pod_changed_for_others(ClusterEvents::POD_GONE, Some(&pod), None, now);
        }
        self.leave_node(key, now);
    }

    fn leave_node(&mut self, key: &ObjectKey, now: Duration) {
        if let Some(pod) = self.nodes.remove_pod(key) {
            self.nodes.devices.forget_special(&pod);
            self.pod_changed_for_others(ClusterEvents::POD_GONE, Some(&pod), None, now);
            self.volumes_freed(&pod, now);
        }
    }

    pub(crate) fn is_assumed(&self, pod: &PodInfo) -> bool {
        self.assumed.get(&pod.key).is_some_and(|uid| **uid == *pod.uid())
    }

    /// A node changed; `None` when it is gone. Returns upstream's label of the event.
    pub fn node_changed(&mut self, name: &str, node: Option<&Node>, now: Duration) -> &'static str {
        let before = self.nodes.state(name);
        let Some(node) = node else {
            self.nodes.remove_node(name);
            self.node_changed_for_pods(ClusterEvents::NODE_GONE, before.as_ref(), name, now);
            self.look_again_on(name);
            return ClusterEvents::NODE_GONE.label();
        };
        let change = self.nodes.set_node(node);
        if change.labels {
            self.look_again_on(name);
        }
        let events = events_of(change);
        self.node_changed_for_pods(events, before.as_ref(), name, now);
        if events == ClusterEvents::NONE {
            "NodeUpdate"
        } else {
            events.label()
        }
    }

    fn node_changed_for_pods(
        &mut self,
        events: ClusterEvents,
        before: Option<&NodeState>,
        name: &str,
        now: Duration,
    ) {
        if events == ClusterEvents::NONE {
            return;
        }
        let (after, nodes) = (self.nodes.state(name), &self.nodes);
        let change = Change::Node {
            before,
            after: after.as_ref(),
            nodes,
        };
        self.queue.changed(events, change, now);
    }

    /// Upstream's label of a pod's change, which is not taken in yet.
    pub fn pod_event(&self, key: &ObjectKey, pod: Option<&Arc<PodInfo>>) -> &'static str {
        let was_placed = self.nodes.node_of(key).is_some();
        let is_placed = pod.map(|pod| pod.node_name().is_some());
        match (is_placed, was_placed, self.queue.contains(key)) {
            (None, true, _) => "AssignedPodDelete",
            (None, false, _) => "UnscheduledPodDelete",
            (Some(true), false, _) => "AssignedPodAdd",
            (Some(true), true, _) => "AssignedPodUpdate",
            (Some(false), _, true) => UPDATED,
            (Some(false), _, false) => ADDED,
        }
    }

    /// A namespace changed; `None` when it is gone.
    pub fn namespace_changed(&mut self, name: &str, labels: Option<Labels>, now: Duration) {
        if self.nodes.set_namespace(name, labels) {
            self.queue.happened(ClusterEvents::NAMESPACE_LABEL, now);
        }
    }

    /// A service or an owner of pods changed; `None` when it is gone.
    pub fn owner_changed(&mut self, kind: OwnerKind, key: &ObjectKey, selector: Option<LabelSelector>) {
        self.nodes
            .owner_selectors_mut()
            .set(kind, &key.namespace, &key.name, selector);
    }

    /// A PodDisruptionBudget changed; `None` when it is gone.
    pub fn budget_changed(&mut self, key: &ObjectKey, budget: Option<Budget>) {
        match budget {
            Some(budget) => self.budgets.insert(key.clone(), budget),
            None => self.budgets.remove(key),
        };
    }

    /// Reports whether [`Self::decide`] has something to do.
    pub fn has_work(&self, now: Duration) -> bool {
        let over = self.binding.waiting.next_end().is_some_and(|end| end <= now);
        let may_try = !self.waits_for_an_answer() && (self.has_an_answer() || self.queue.has_next(now));
        self.is_in_dry_run() || over || !self.binding.decided.is_empty() || may_try
    }

    /// Reports whether a dry run of preemption goes on in the next burst: no change may come in between.
    pub fn is_in_dry_run(&self) -> bool {
        self.dry_run.is_some()
    }

    /// Time to look again although nothing changed.
    pub fn next_wake(&self) -> Option<Duration> {
        let ends = self.binding.waiting.next_end();
        if self.waits_for_an_answer() {
            return ends;
        }
        [self.queue.next_wake(), ends].into_iter().flatten().min()
    }

    /// Reports whether the next decision may take longer than a burst should: it belongs on a thread of its own.
    pub fn is_heavy_next(&mut self, now: Duration) -> bool {
        if self.is_in_dry_run() {
            return true;
        }
        if self.waits_for_an_answer() {
            return false;
        }
        let among = self.nodes.rows().max(self.nodes.pod_count());
        let (next, devices) = (self.queue.peek(now), &self.nodes.devices);
        // What a search for devices takes shows while it goes on.
        next.is_some_and(|pod| {
            let has_devices = pod.has_device_claims() || devices.serves(pod);
            has_devices || pod.long_items().saturating_mul(among) > BURST_STEPS
        })
    }

    /// Decides about the next waiting pods, up to `room` of them and no more than changes may wait for. A heavy one is
    /// decided about alone.
    pub fn decide_burst(
        &mut self,
        now: Duration,
        room: usize,
        mut random: impl FnMut() -> u64,
    ) -> Vec<Decision> {
        self.steps = 0;
        self.end_waiting(now);
        let ready = self.binding.decided.len().min(room);
        let mut decisions: Vec<Decision> = self.binding.decided.drain(..ready).collect();
        while decisions.len() < room.min(BURST) && self.steps < BURST_STEPS {
            if self.steps > 0 && self.is_heavy_next(now) {
                break;
            }
            let Some(decision) = self.decide(now, random()) else {
                break;
            };
            decisions.push(decision);
        }
        decisions
    }

    /// Takes the next waiting pod and decides about it. `None` where none waits, and where a dry run of preemption has done
    /// the steps of this burst: [`Self::is_in_dry_run`].
    pub fn decide(&mut self, now: Duration, random: u64) -> Option<Decision> {
        if let Some(begun) = self.dry_run.take() {
            return self.go_on(begun, now);
        }
        if self.waits_for_an_answer() {
            return None;
        }
        // What the attempt began with may have changed while extenders were asked.
        if self.has_an_answer() {
            self.renew_pools();
        }
        if self.has_an_answer()
            && let Some(decision) = self.go_on_with_answer(now, random)
        {
            return Some(decision);
        }
        if self.is_in_dry_run() || self.waits_for_an_answer() {
            return None;
        }
        let queued = self.queue.pop(now)?;
        if queued.pod.has_device_claims() || self.nodes.devices.serves(&queued.pod) {
            self.renew_pools();
        }
        let attempt = self.measuring.begin(&queued);
        let extenders = match self.extenders.ask_about_nodes(&queued.pod) {
            true => Extenders::Unasked,
            false => Extenders::Absent,
        };
        let placed = self.place(&attempt, extenders, now, random)?;
        if let Some(error) = devices_error(&attempt) {
            return Some(self.went_wrong(attempt, error, now));
        }
        match placed {
            Ok(Placement::On(node)) => Some(self.assume(&attempt, node, now)),
            Ok(Placement::Ask(nominated, nodes)) => Some(self.ask_about_nodes(attempt, nominated, &nodes)),
            Err(unplaced) => self.unplaced(attempt, unplaced, now, random),
        }
    }

    /// Takes over the time of the clock on the wall, in which claims say when they were allocated.
    pub fn set_wall_time(&mut self, now: Timestamp) {
        self.nodes.devices.wall_time = now;
    }

    fn renew_pools(&mut self) {
        let devices = self.nodes.devices.pools.renew();
        self.steps = self.steps.saturating_add(devices);
    }

    /// Gives the pod its node, as far as the scheduler is concerned.
    pub(crate) fn assume(&mut self, attempt: &Attempt, node: NodeId, now: Duration) -> Decision {
        let pod = Arc::clone(attempt.pod());
        let reservation = match self.reserve(attempt, node) {
            Ok(reservation) => reservation,
            Err(message) => return self.not_reserved(attempt, message, now),
        };
        self.measuring.decided(attempt);
        let node = self.nodes.names[node].clone();
        self.assumed.insert(pod.key.clone(), pod.uid().into());
        self.nodes.usage.placed(&node, assumed_usage(&pod), now);
        self.nodes.set_pod(&pod, &node);
        self.nominations.remove(&pod);
        if reservation.is_empty() {
            let held = reservation.held;
            return Decision::Bind { pod, node, held };
        }
        Decision::Reserve {
            pod,
            node,
            reservation,
        }
    }

    /// The node does not give what it was chosen for: the pod waits for its next turn.
    fn not_reserved(&mut self, attempt: &Attempt, why: String, now: Duration) -> Decision {
        let pod = Arc::clone(attempt.pod());
        self.measuring.decided(attempt);
        self.measuring.end(&pod, AttemptResult::Error);
        self.queue.retry(&pod.key, now);
        let message = format!("running Reserve plugin \"DynamicResources\": {why}");
        Decision::Error { pod, message }
    }

    fn reserve(&mut self, attempt: &Attempt, node: NodeId) -> Result<Reservation, String> {
        let since = attempt.meter().map(Meter::now);
        // Devices first: only they can fail.
        let reserved = reserve_devices(attempt, &mut self.nodes, node)?;
        let reservation = Reservation {
            devices: reserved.devices,
            conditions: reserved.conditions,
            held: reserved.held,
            ..reserve(attempt, &mut self.nodes, node)
        };
        if let Some((meter, since)) = attempt.meter().zip(since) {
            meter.ran(ExtensionPoint::Reserve, None, SUCCESS, since);
        }
        Ok(reservation)
    }

    /// Steps since the last burst began.
    #[cfg(test)]
    pub(crate) fn last_steps(&self) -> usize {
        self.steps
    }

    /// Counts the steps of an attempt for this burst, and for the turns of the pod's namespace.
    pub(crate) fn charge(&mut self, attempt: &Attempt) {
        let steps = attempt.take_steps();
        self.steps = self.steps.saturating_add(steps);
        self.queue.charge(attempt.pod(), steps);
    }

    /// Binding went through; the API delivers the rest.
    pub fn bound(&mut self, pod: &PodInfo) {
        self.measuring.end(pod, AttemptResult::Scheduled);
        if self.is_assumed(pod) {
            self.queue.remove(&pod.key);
        }
    }

    /// Binding failed: the node is free again and the pod waits for its next turn, unless it is on its way out.
    pub fn binding_failed(&mut self, pod: &PodInfo, now: Duration) {
        self.measuring.end(pod, AttemptResult::Error);
        if !self.is_assumed(pod) {
            return;
        }
        self.assumed.remove(&pod.key);
        self.binding.waiting.remove(&pod.key);
        self.leave_node(&pod.key, now);
        if self.queue.get(&pod.key).is_some_and(|own| own.pod.is_deleting()) {
            self.waits_no_more(&pod.key);
        }
        self.queue.retry(&pod.key, now);
    }
}

/// Classes of what changed of a pod on its node.
fn updates_of(before: &PodInfo, after: &PodInfo) -> ClusterEvents {
    let labels = before.pod.metadata.labels != after.pod.metadata.labels;
    let scaled_down = before.shape.requests.exceed(&after.shape.requests);
    among(&[
        (labels, ClusterEvents::POD_LABEL),
        (scaled_down, ClusterEvents::POD_SCALE_DOWN),
    ])
}

fn events_of(change: NodeChange) -> ClusterEvents {
    if change.added {
        return ClusterEvents::NODE_ADD;
    }
    among(&[
        (change.allocatable, ClusterEvents::NODE_ALLOCATABLE),
        (change.labels, ClusterEvents::NODE_LABEL),
        (change.taints, ClusterEvents::NODE_TAINT),
        (change.features, ClusterEvents::NODE_FEATURES),
        (change.conditions, ClusterEvents::NODE_CONDITION),
        (change.annotations, ClusterEvents::NODE_ANNOTATION),
    ])
}

fn among(all: &[(bool, ClusterEvents)]) -> ClusterEvents {
    let happened = all.iter().filter(|(is, _)| *is);
    happened.fold(ClusterEvents::NONE, |all, (_, event)| all.and(*event))
}
