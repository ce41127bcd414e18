//! The scheduler as a value: changes go in, decisions come out.

use crate::algorithm::{Algorithm, FitError, Nominations};
use crate::attempt::Attempt;
use crate::diagnosis::Diagnosis;
use crate::framework::ClusterEvents;
use crate::nodes::{NodeChange, NodeTable};
use crate::object::{LabelSelector, Labels, Node};
use crate::owner_selectors::OwnerKind;
use crate::plugins::default_rows;
use crate::pod::PodInfo;
use crate::preemption::{Budget, Budgets, Candidate, DryRun, PreemptionImpossible, Surroundings};
use crate::queue::Queue;
use crate::volumes::Reservation;
use crate::volumes::reservation::reserve;
use crate::volumes::scheduling::BindingPods;
use machinery_meta::ObjectKey;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Decisions before changes are looked at again.
const BURST: usize = 16;
/// Steps of attempts after which a burst ends early: a few milliseconds. The attempt that reaches them is finished.
const BURST_STEPS: usize = 65_536;

/// Pods that name this scheduler are ours.
pub const SCHEDULER_NAME: &str = "default-scheduler";

/// What to do about one pod.
#[derive(Debug)]
pub enum Decision {
    /// The pod is assumed on the node: bind it.
    Bind { pod: Arc<PodInfo>, node: Box<str> },
    /// The pod is assumed on the node, and its claims are not bound yet: write what is reserved.
    Reserve {
        pod: Arc<PodInfo>,
        node: Box<str>,
        reservation: Reservation,
    },
    /// The pod is assumed on a node, and cannot be bound to it: say so.
    Fail { pod: Arc<PodInfo>, message: String },
    /// The pod fits nowhere: say so.
    Reject {
        pod: Arc<PodInfo>,
        message: String,
        preemption: Option<Preemption>,
    },
}

/// Pods to delete so that another will fit.
#[derive(Debug)]
pub struct Preemption {
    pub node: Box<str>,
    pub victims: Vec<Arc<PodInfo>>,
    /// Pods whose promise of this node is taken back.
    pub dispossessed: Vec<Arc<PodInfo>>,
}

/// Nodes, waiting pods, and what was decided but not yet seen.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) nodes: NodeTable,
    pub(crate) queue: Queue,
    algorithm: Algorithm,
    nominations: Nominations,
    budgets: Budgets,
    /// Pods being bound, by key, with their uid: their node is decided although the API does not say so yet.
    assumed: HashMap<ObjectKey, Box<str>>,
    pub(crate) binding: BindingPods,
    /// Steps of the attempts of this burst; see [`Attempt`].
    steps: usize,
    /// The attempt whose dry run of preemption goes on in the next burst.
    dry_run: Option<DryRunOf>,
}

/// A dry run, the attempt that it is for, and why the pod fits nowhere as it is.
#[derive(Debug)]
struct DryRunOf {
    attempt: Attempt,
    diagnosis: Box<Diagnosis>,
    dry_run: DryRun,
}

impl Default for Scheduler {
    fn default() -> Self {
        Self {
            nodes: NodeTable::default(),
            queue: Queue::default(),
            algorithm: Algorithm::new(default_rows()),
            nominations: Nominations::default(),
            budgets: Budgets::new(),
            assumed: HashMap::new(),
            binding: BindingPods::default(),
            steps: 0,
            dry_run: None,
        }
    }
}

impl Scheduler {
    /// A pod changed; `None` when it is gone or has ended.
    pub fn pod_changed(&mut self, key: &ObjectKey, pod: Option<&Arc<PodInfo>>, now: Duration) {
        let Some(pod) = pod.filter(|pod| !pod.pod.is_terminal()) else {
            return self.pod_gone(key, now);
        };
        if let Some(node) = pod.node_name() {
            self.waits_no_more(key);
            let known = self.nodes.node_of(key).is_some();
            if self.nodes.set_pod(pod, node) {
                let event = if known {
                    ClusterEvents::POD_LABEL.and(ClusterEvents::POD_GONE)
                } else {
                    ClusterEvents::POD_PLACED
                };
                self.queue.happened(event, now);
            }
            return;
        }
        if self.assumed.get(key).is_some_and(|uid| **uid == *pod.uid()) {
            return;
        }
        if self.nodes.node_of(key).is_some() {
            // Another pod of this name was on a node.
            self.pod_gone(key, now);
        }
        if pod.pod.is_deleting() || &*pod.pod.spec.scheduler_name != SCHEDULER_NAME {
            self.waits_no_more(key);
            return;
        }
        let gated = self
            .algorithm
            .rows()
            .iter()
            .any(|row| row.plugin.pre_enqueue(pod).is_err());
        let nominated = &pod.pod.status.nominated_node_name;
        if !nominated.is_empty() && !self.queue.contains(key) {
            self.nominations.add(pod, nominated);
        }
        self.queue.set(Arc::clone(pod), gated, now);
    }

    fn waits_no_more(&mut self, key: &ObjectKey) {
        self.assumed.remove(key);
        self.binding.waiting.remove(key);
        if let Some(pod) = self.queue.remove(key) {
            self.nominations.remove(&pod);
        }
    }

    fn pod_gone(&mut self, key: &ObjectKey, now: Duration) {
        self.waits_no_more(key);
        self.leave_node(key, now);
    }

    fn leave_node(&mut self, key: &ObjectKey, now: Duration) {
        if let Some(pod) = self.nodes.remove_pod(key) {
            self.queue.happened(ClusterEvents::POD_GONE, now);
            self.volumes_freed(&pod, now);
        }
    }

    pub(crate) fn is_assumed(&self, pod: &PodInfo) -> bool {
        self.assumed.get(&pod.key).is_some_and(|uid| **uid == *pod.uid())
    }

    /// A node changed; `None` when it is gone.
    pub fn node_changed(&mut self, name: &str, node: Option<&Node>, now: Duration) {
        let Some(node) = node else {
            self.nodes.remove_node(name);
            self.queue.happened(ClusterEvents::NODE_GONE, now);
            self.look_again_on(name);
            return;
        };
        let change = self.nodes.set_node(node);
        if change.labels {
            self.look_again_on(name);
        }
        self.queue.happened(events_of(change), now);
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

    /// Whether [`Self::decide`] has something to do.
    pub fn has_work(&self, now: Duration) -> bool {
        let over = self.binding.waiting.next_end().is_some_and(|end| end <= now);
        self.is_in_dry_run() || over || !self.binding.decided.is_empty() || self.queue.has_next(now)
    }

    /// Whether a dry run of preemption goes on in the next burst: no change may come in between.
    pub fn is_in_dry_run(&self) -> bool {
        self.dry_run.is_some()
    }

    /// When to look again although nothing changed.
    pub fn next_wake(&self) -> Option<Duration> {
        let ends = self.binding.waiting.next_end();
        [self.queue.next_wake(), ends].into_iter().flatten().min()
    }

    /// Whether the next decision may take longer than a burst should: it belongs on a thread of its own.
    pub fn is_heavy_next(&mut self, now: Duration) -> bool {
        if self.is_in_dry_run() {
            return true;
        }
        let among = self.nodes.rows().max(self.nodes.pod_count());
        let next = self.queue.peek(now);
        next.is_some_and(|pod| pod.long_items().saturating_mul(among) > BURST_STEPS)
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
        let pod = self.queue.pop(now)?.pod;
        let attempt = Attempt::new(&pod);
        let placed = self
            .algorithm
            .place(&attempt, &mut self.nodes, &self.nominations, random);
        self.charge(&attempt);
        match placed {
            Ok(node) => {
                let reservation = reserve(&attempt, &mut self.nodes, node);
                let node = self.nodes.names[node].clone();
                self.assumed.insert(pod.key.clone(), pod.uid().into());
                self.nodes.set_pod(&pod, &node);
                self.nominations.remove(&pod);
                Some(if reservation.is_empty() {
                    Decision::Bind { pod, node }
                } else {
                    Decision::Reserve {
                        pod,
                        node,
                        reservation,
                    }
                })
            }
            Err(unplaced) => self.unplaced(attempt, unplaced, now, random),
        }
    }

    /// Counts the steps of an attempt for this burst, and for the turns of the pod's namespace.
    fn charge(&mut self, attempt: &Attempt) {
        let steps = attempt.take_steps();
        self.steps = self.steps.saturating_add(steps);
        self.queue.charge(attempt.pod(), steps);
    }

    fn unplaced(
        &mut self,
        attempt: Attempt,
        unplaced: FitError,
        now: Duration,
        random: u64,
    ) -> Option<Decision> {
        let pod = attempt.pod();
        let (diagnosis, resolvable) = match unplaced {
            FitError::NoNodes => {
                self.queue.reject(&pod.key, ClusterEvents::ANY, now);
                return Some(Decision::Reject {
                    pod: Arc::clone(pod),
                    message: FitError::NoNodes.message(),
                    preemption: None,
                });
            }
            FitError::Unfit {
                diagnosis,
                resolvable,
            } => (diagnosis, resolvable),
        };
        if diagnosis.pre_filter_message.is_some() {
            // What upstream's DynamicResources says in a cycle that ended before its turn; no pod is preempted.
            return Some(self.rejected(pod, *diagnosis, "not found".to_owned(), None, now));
        }
        match DryRun::begin(pod, &self.nodes, &resolvable, random) {
            Ok(dry_run) => {
                let begun = DryRunOf {
                    attempt,
                    diagnosis,
                    dry_run,
                };
                self.go_on(begun, now)
            }
            Err(impossible) => {
                let message = format!("preemption: {}", impossible.0);
                Some(self.rejected(pod, *diagnosis, message, None, now))
            }
        }
    }

    /// Brings a dry run forward by as many steps as a burst has.
    fn go_on(&mut self, mut begun: DryRunOf, now: Duration) -> Option<Decision> {
        let attempt = &begun.attempt;
        let around = Surroundings {
            algorithm: &self.algorithm,
            nominations: &self.nominations,
            budgets: &self.budgets,
        };
        let over = begun.dry_run.advance(
            attempt,
            &mut self.nodes,
            around,
            BURST_STEPS.saturating_sub(self.steps),
        );
        self.charge(&begun.attempt);
        if !over {
            self.dry_run = Some(begun);
            return None;
        }
        let pod = Arc::clone(begun.attempt.pod());
        let (message, preemption) = self.preempt(&pod, begun.dry_run.end());
        let message = format!("preemption: {message}");
        Some(self.rejected(&pod, *begun.diagnosis, message, preemption, now))
    }

    fn rejected(
        &mut self,
        pod: &Arc<PodInfo>,
        mut diagnosis: Diagnosis,
        message: String,
        preemption: Option<Preemption>,
        now: Duration,
    ) -> Decision {
        diagnosis.post_filter_message = Some(message);
        let rejecting = self
            .algorithm
            .rows()
            .iter()
            .filter(|row| diagnosis.plugins.contains(row.plugin.name()));
        let wakes_on = rejecting.fold(ClusterEvents::NONE, |all, row| all.and(row.plugin.requeue_on()));
        self.queue.reject(&pod.key, wakes_on, now);
        Decision::Reject {
            pod: Arc::clone(pod),
            message: diagnosis.message(),
            preemption,
        }
    }

    /// Whom to delete so that the pod fits, and the words for it.
    fn preempt(
        &mut self,
        pod: &Arc<PodInfo>,
        found: Result<Candidate, PreemptionImpossible>,
    ) -> (String, Option<Preemption>) {
        let candidate = match found {
            Ok(candidate) => candidate,
            Err(not_helpful) => return (not_helpful.0, None),
        };
        let node = self.nodes.names[candidate.node].clone();
        let count = candidate.victims.len();
        let message =
            format!("found a potential placement for pod on node {node}, preempting {count} victims");
        let dispossessed = self.nominations.lower(pod, &node);
        dispossessed
            .iter()
            .for_each(|other| self.nominations.remove(other));
        self.nominations.add(pod, &node);
        let preemption = Preemption {
            node,
            victims: candidate.victims,
            dispossessed,
        };
        (message, Some(preemption))
    }

    /// Binding went through; the API tells the rest.
    pub fn bound(&mut self, pod: &PodInfo) {
        if self.is_assumed(pod) {
            self.queue.remove(&pod.key);
        }
    }

    /// Binding failed: the node is free again and the pod waits for its next turn.
    pub fn binding_failed(&mut self, pod: &PodInfo, now: Duration) {
        if !self.is_assumed(pod) {
            return;
        }
        self.assumed.remove(&pod.key);
        self.binding.waiting.remove(&pod.key);
        self.leave_node(&pod.key, now);
        self.queue.retry(&pod.key, now);
    }
}

fn events_of(change: NodeChange) -> ClusterEvents {
    let all = [
        (change.added, ClusterEvents::NODE_ADD),
        (change.allocatable, ClusterEvents::NODE_ALLOCATABLE),
        (change.labels, ClusterEvents::NODE_LABEL),
        (change.taints, ClusterEvents::NODE_TAINT),
    ];
    all.into_iter()
        .filter(|(is, _)| *is)
        .fold(ClusterEvents::NONE, |all, (_, event)| all.and(event))
}
