//! Plan of the next actions for a pod. Pure: a snapshot in, a plan out.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use machinery_meta::go_duration;

use super::backoff::BackOff;
use super::ephemeral::ephemeral_containers;
use super::faults::Fault;
use super::observed::{ContainerState, ObservedContainer, ObservedPod};
use super::resize::{Amounts, Resize, Resources};
use super::restarts::{RestartPolicy, is_done, restarts_all, round, source_of_round, starts_again};
use super::{ContainerKind, all_containers, full_name_with_uid, init_kind, spec};
use crate::probes::ProbeView;

/// Everything a decision may read.
#[derive(Debug)]
pub(crate) struct Snapshot<'a> {
    /// The pod as the API server has it.
    pub(crate) pod: &'a Pod,
    /// Sandboxes and containers of the pod.
    pub(crate) observed: &'a ObservedPod,
    /// Results of probes, by container id.
    pub(crate) probes: &'a ProbeView,
    /// Resources that its containers were given last.
    pub(crate) actuated: &'a Resources,
    /// Delays of its containers, by name.
    pub(crate) backoff: &'a BackOff,
    /// The time of the decision.
    pub(crate) now: Timestamp,
}

/// A running container to stop, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kill {
    /// Its name.
    pub(crate) name: String,
    /// The runtime's id.
    pub(crate) id: String,
    /// For the event.
    pub(crate) message: String,
    /// A grace period that overrides the pod's.
    pub(crate) grace_seconds: Option<i64>,
    /// Nothing is known of it that could be kept.
    pub(crate) remove: bool,
}

/// A container to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Start {
    /// Its name.
    pub(crate) name: String,
    /// Number of restarts, this one included.
    pub(crate) restart_count: i32,
    /// Round of the pod in which it starts.
    pub(crate) round: u32,
    /// Time at which its last run ended, from which backoff counts.
    pub(crate) ended_at: Option<Timestamp>,
}

/// Actions, in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Everything of the pod is to end: it has done what it was for, or cannot.
    pub(crate) finish: bool,
    /// A sandbox is to be made, with this attempt number, after all others are gone.
    pub(crate) create_sandbox: Option<u32>,
    /// Containers to stop.
    pub(crate) kill: Vec<Kill>,
    /// Ids of containers to remove, which were made and never started.
    pub(crate) remove: Vec<String>,
    /// Running containers that may use more or less from now on.
    pub(crate) resize: Vec<Resize>,
    /// Containers to start, in order.
    pub(crate) start: Vec<Start>,
    /// Containers that wait, and why, as their status says it.
    pub(crate) waiting: BTreeMap<String, (String, String)>,
    /// Time of the next round if nothing happens before.
    pub(crate) requeue_at: Option<Timestamp>,
}

/// Decides.
pub(crate) fn plan(snapshot: &Snapshot<'_>) -> Plan {
    let mut plan = Plan::default();
    let sandbox = snapshot.observed.sandbox();
    match sandbox.filter(|sandbox| sandbox.ready) {
        None => plan_sandbox(snapshot, &mut plan),
        Some(sandbox) => {
            let mut decider = Decider {
                snapshot,
                sandbox_id: &sandbox.id,
                round: round(snapshot.pod, snapshot.observed),
                plan: &mut plan,
            };
            decider.containers();
        }
    }
    plan
}

/// Plans a sandbox where none works: makes one if there is something to run in it.
fn plan_sandbox(snapshot: &Snapshot<'_>, plan: &mut Plan) {
    let attempt = snapshot
        .observed
        .sandbox()
        .map_or(0, |sandbox| sandbox.attempt + 1);
    let containers = &spec(snapshot.pod).containers;
    let latest = |container: &Container| snapshot.observed.latest(&container.name);
    let ran_before = attempt > 0 && !snapshot.observed.containers.is_empty();
    // A pod that never restarts does not get a second sandbox, as in upstream's `computePodActions`: its
    // containers would run twice.
    let never = ran_before && RestartPolicy::of(snapshot.pod) == RestartPolicy::Never;
    let began = containers
        .iter()
        .any(|container| latest(container).is_some_and(|found| found.state != ContainerState::Unknown));
    let done = |container: &Container| {
        latest(container).is_some_and(|found| is_done(snapshot.pod, container, found))
    };
    // Only with one of them known to the runtime: after a lost state all of them start.
    if never || began && containers.iter().all(done) {
        plan.finish = true;
        return;
    }
    plan.create_sandbox = Some(attempt);
}

/// Outcome of the step of one container, for those after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// This one is where it should be.
    Passed,
    /// Containers after it wait.
    Blocked,
    /// It failed for good, and the pod with it.
    Failed,
}

struct Decider<'a, 'b> {
    snapshot: &'a Snapshot<'a>,
    sandbox_id: &'a str,
    round: u32,
    plan: &'b mut Plan,
}

impl<'a> Decider<'a, '_> {
    fn containers(&mut self) {
        self.ephemerals();
        if self.end_earlier_round() || self.round_waits() {
            return;
        }
        match self.inits() {
            Step::Passed => self.regulars(),
            Step::Blocked => {}
            Step::Failed => self.plan.finish = true,
        }
    }

    /// Ends at once what still runs of an earlier round, sidecars after the others, and reports whether anything does.
    fn end_earlier_round(&mut self) -> bool {
        let left: Vec<_> = all_containers(self.snapshot.pod)
            .filter_map(|(kind, container)| {
                let found = self.snapshot.observed.current(&container.name, self.sandbox_id)?;
                let runs = found.round < self.round && found.state != ContainerState::Exited;
                runs.then_some((kind, container, found))
            })
            .collect();
        let regular = |kind: ContainerKind| kind == ContainerKind::Regular;
        let first = left.iter().any(|(kind, ..)| regular(*kind));
        for (_, container, found) in left.iter().filter(|(kind, ..)| regular(*kind) == first) {
            match found.state {
                ContainerState::Created => self.plan.remove.push(found.id.clone()),
                _ => self.kill(container, found, "killing", Some(0)),
            }
        }
        !left.is_empty()
    }

    /// Reports whether a round that has not begun waits: all of its containers wait as long as the one whose end requested it.
    fn round_waits(&mut self) -> bool {
        let source = source_of_round(self.snapshot.pod, self.snapshot.observed);
        source.is_some_and(|(container, found)| self.backs_off(container, found))
    }

    /// Starts ephemeral containers at once, since they are for debugging a pod that does not come up, and only once.
    fn ephemerals(&mut self) {
        for container in ephemeral_containers(self.snapshot.pod) {
            if self.snapshot.observed.latest(&container.name).is_none() {
                self.start(&container);
            }
        }
    }

    fn inits(&mut self) -> Step {
        let pod = self.snapshot.pod;
        let regular_began = spec(pod)
            .containers
            .iter()
            .any(|container| self.current(container).is_some());
        for container in spec(pod).init_containers.iter().flatten() {
            let step = match init_kind(container) {
                ContainerKind::Sidecar => self.sidecar(container),
                // Init containers that ran are never run again once the pod's own containers began.
                _ if regular_began => Step::Passed,
                _ => self.init(container),
            };
            // Once regular containers run, a failing sidecar is restarted beside them and holds up nothing.
            if step != Step::Passed && !regular_began {
                return step;
            }
        }
        Step::Passed
    }

    fn init(&mut self, container: &'a Container) -> Step {
        let Some(found) = self.current(container) else {
            self.start(container);
            return Step::Blocked;
        };
        let pod = self.snapshot.pod;
        match found.state {
            ContainerState::Running => {
                self.resize(container, found);
                Step::Blocked
            }
            ContainerState::Exited if found.exit_code == 0 => Step::Passed,
            ContainerState::Exited if starts_again(pod, container, found.exit_code) => {
                self.start_after_backoff(container, found);
                Step::Blocked
            }
            ContainerState::Unknown
                if RestartPolicy::of_container(pod, container) == RestartPolicy::Never =>
            {
                Step::Failed
            }
            ContainerState::Exited => Step::Failed,
            ContainerState::Created => {
                self.make_again(container, found);
                Step::Blocked
            }
            ContainerState::Unknown => {
                self.replace(container, found, &Fault::unknown_state(ContainerKind::Init));
                Step::Blocked
            }
        }
    }

    fn sidecar(&mut self, container: &'a Container) -> Step {
        let running = self.keep_running(ContainerKind::Sidecar, container);
        let started = self
            .current(container)
            .is_some_and(|found| self.snapshot.probes.started(&found.id, container));
        if running && started {
            Step::Passed
        } else {
            Step::Blocked
        }
    }

    fn regulars(&mut self) {
        let mut kept = 0;
        for container in &spec(self.snapshot.pod).containers {
            if self.keep_running(ContainerKind::Regular, container) || self.will_run(container) {
                kept += 1;
            }
        }
        if kept == 0 {
            // The lists are emptied: the pod ends as a whole then, its sidecars after the others.
            self.plan.finish = true;
            self.plan.kill.clear();
            self.plan.remove.clear();
            self.plan.start.clear();
            self.plan.resize.clear();
        }
    }

    fn will_run(&self, container: &Container) -> bool {
        self.plan.start.iter().any(|start| start.name == container.name)
            || self.plan.waiting.contains_key(&container.name)
    }

    /// Keeps a container running as its policy requires; returns whether it runs now and may go on.
    fn keep_running(&mut self, kind: ContainerKind, container: &'a Container) -> bool {
        let pod = self.snapshot.pod;
        let Some(found) = self.current(container) else {
            if !self.stays_ended(container) {
                self.start(container);
            }
            return false;
        };
        match found.state {
            ContainerState::Running => self.keep_or_replace(kind, container, found),
            ContainerState::Exited if starts_again(pod, container, found.exit_code) => {
                self.start_after_backoff(container, found);
                false
            }
            ContainerState::Exited => false,
            ContainerState::Created => {
                self.make_again(container, found);
                false
            }
            ContainerState::Unknown => {
                self.replace(container, found, &Fault::unknown_state(kind));
                false
            }
        }
    }

    /// Reports whether a container of an earlier sandbox is left as it ended. A new sandbox starts a pod without init
    /// containers as a whole, but for what is done; after init containers rules and policies decide (upstream's `computePodActions`).
    fn stays_ended(&self, container: &Container) -> bool {
        let (pod, before) = (self.snapshot.pod, self.snapshot.observed.latest(&container.name));
        before.is_some_and(|before| match spec(pod).init_containers.as_deref() {
            _ if before.round != self.round => false,
            None | Some([]) => is_done(pod, container, before),
            Some(_) => {
                before.state == ContainerState::Exited && !starts_again(pod, container, before.exit_code)
            }
        })
    }

    /// Leaves a running container alone, or stops it; says whether it may go on.
    fn keep_or_replace(
        &mut self,
        kind: ContainerKind,
        container: &'a Container,
        found: &ObservedContainer,
    ) -> bool {
        let snapshot = self.snapshot;
        let amounts = self.amounts(container);
        match Fault::of(snapshot.pod, (kind, container), found, snapshot.probes, &amounts) {
            None => {
                self.resize(container, found);
                true
            }
            Some(fault) if fault.restarts => {
                self.replace(container, found, &fault);
                false
            }
            Some(fault) => {
                self.kill(container, found, &fault.message, fault.grace_seconds);
                // It counts as running until it is seen to have ended.
                true
            }
        }
    }

    /// Resources that a container was given last, and those it is to have.
    fn amounts(&self, container: &Container) -> (Amounts, Amounts) {
        let given = self.snapshot.actuated.put_into_container(container);
        (Amounts::of(&given), Amounts::of(container))
    }

    fn resize(&mut self, container: &Container, found: &ObservedContainer) {
        let (from, to) = self.amounts(container);
        if from != to {
            self.plan.resize.push(Resize {
                name: container.name.clone(),
                id: found.id.clone(),
                from,
                to,
            });
        }
    }

    fn current(&self, container: &Container) -> Option<&'a ObservedContainer> {
        let found = self.snapshot.observed.current(&container.name, self.sandbox_id);
        found.filter(|found| found.round == self.round)
    }

    fn kill(&mut self, container: &Container, found: &ObservedContainer, message: &str, grace: Option<i64>) {
        self.plan.kill.push(Kill {
            name: container.name.clone(),
            id: found.id.clone(),
            message: message.to_string(),
            grace_seconds: grace,
            remove: found.state == ContainerState::Unknown,
        });
    }

    fn replace(&mut self, container: &Container, found: &ObservedContainer, fault: &Fault) {
        self.kill(container, found, &fault.message, fault.grace_seconds);
        let before = self.snapshot.observed.previous(&container.name);
        let before = before.filter(|before| before.state == ContainerState::Exited);
        // The one that is killed has not ended yet, so the pause is that after the end before it (upstream's `doBackOff`): one
        // that ran for longer than the pause has an heir at once.
        if !before.is_some_and(|before| self.backs_off(container, before)) {
            self.start_after(container, before.and_then(|before| before.finished_at));
        }
    }

    /// A container that was made and did not start is removed, and another starts in its place, under its number: the
    /// count is the same whether the other starts at once or after further failures.
    fn make_again(&mut self, container: &Container, found: &ObservedContainer) {
        self.plan.remove.push(found.id.clone());
        self.plan.start.push(Start {
            name: container.name.clone(),
            restart_count: found.restart_count,
            round: self.round,
            ended_at: None,
        });
    }

    fn start(&mut self, container: &Container) {
        let latest = self.snapshot.observed.latest(&container.name);
        // One that was ended for another's sake does not wait longer the next time.
        let own_end =
            latest.filter(|latest| latest.round == self.round || restarts_all(container, latest.exit_code));
        self.start_after(container, own_end.and_then(|latest| latest.finished_at));
    }

    /// Starts a container whose backoff counts from this end.
    fn start_after(&mut self, container: &Container, ended_at: Option<Timestamp>) {
        let latest = self.snapshot.observed.latest(&container.name);
        self.plan.start.push(Start {
            name: container.name.clone(),
            restart_count: latest.map_or(0, |latest| latest.restart_count + 1),
            round: self.round,
            ended_at,
        });
    }

    fn start_after_backoff(&mut self, container: &Container, ended: &ObservedContainer) {
        if !self.backs_off(container, ended) {
            self.start(container);
        }
    }

    /// Notes that a container waits, if it has kept ending.
    fn backs_off(&mut self, container: &Container, ended: &ObservedContainer) -> bool {
        let now = self.snapshot.now;
        let since = ended.finished_at.unwrap_or(now);
        let Some((delay, until)) = self.snapshot.backoff.waiting(&container.name, since, now) else {
            return false;
        };
        let message = format!(
            "back-off {} restarting failed container={} pod={}",
            go_duration::write(delay),
            container.name,
            full_name_with_uid(self.snapshot.pod)
        );
        let reason = "CrashLoopBackOff".to_string();
        self.plan
            .waiting
            .insert(container.name.clone(), (reason, message));
        self.plan.requeue_at = Some(self.plan.requeue_at.map_or(until, |other| other.min(until)));
        true
    }
}

/// A number that changes when a container has to be created again: of all of its fields only the image may
/// change while the pod lives.
pub(crate) fn container_hash(container: &Container) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let text = [
        container.name.as_str(),
        container.image.as_deref().unwrap_or_default(),
    ]
    .join("\n");
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{hash:016x}")
}
