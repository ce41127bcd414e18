//! Plan of the next actions for a pod. Pure: a snapshot in, a plan out.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::backoff::BackOff;
use super::ephemeral::ephemeral_containers;
use super::observed::{ContainerState, ObservedContainer, ObservedPod};
use super::resize::{Amounts, Resize, Resources, asks_for_restart};
use super::restarts::{RestartPolicy, restarts_all, round, starts_again};
use super::{ContainerKind, all_containers, full_name_with_uid, init_kind, spec};
use crate::probes::ProbeView;

/// Everything a decision may look at.
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
    /// It never ran: there is nothing to keep of it.
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

/// There is no working sandbox: make one if there is something to run in it.
fn plan_sandbox(snapshot: &Snapshot<'_>, plan: &mut Plan) {
    let attempt = snapshot
        .observed
        .sandbox()
        .map_or(0, |sandbox| sandbox.attempt + 1);
    let ran_before = attempt > 0 && !snapshot.observed.containers.is_empty();
    let left = spec(snapshot.pod).containers.iter().any(|container| {
        // One that still runs without its sandbox has not done well yet (upstream's `containerSucceeded`).
        let found = snapshot.observed.latest(&container.name);
        found.is_none_or(|found| {
            found.state != ContainerState::Exited || starts_again(snapshot.pod, container, found.exit_code)
        })
    });
    if ran_before && (RestartPolicy::of(snapshot.pod) == RestartPolicy::Never || !left) {
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
    /// Those after it wait.
    Blocked,
    /// It failed for good, and the pod with it.
    Failed,
}

/// Reason for a running container to stop.
struct Fault {
    message: String,
    grace_seconds: Option<i64>,
    restarts: bool,
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
        if self.end_earlier_round() {
            return;
        }
        match self.inits() {
            Step::Passed => self.regulars(),
            Step::Blocked => {}
            Step::Failed => self.plan.finish = true,
        }
    }

    /// Ends at once what still runs of an earlier round, and reports whether anything does.
    fn end_earlier_round(&mut self) -> bool {
        for (_, container) in all_containers(self.snapshot.pod) {
            let found = self.snapshot.observed.current(&container.name, self.sandbox_id);
            let left =
                found.filter(|found| found.round < self.round && found.state != ContainerState::Exited);
            if let Some(found) = left {
                let message = format!("Stopping container {}", container.name);
                self.kill(container, found, &message, Some(0));
            }
        }
        !self.plan.kill.is_empty()
    }

    /// They start at once, since they are for debugging a pod that does not come up, and start only once.
    fn ephemerals(&mut self) {
        for container in ephemeral_containers(self.snapshot.pod) {
            if self.snapshot.observed.latest(&container.name).is_none() {
                self.start(&container, None);
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
            if step != Step::Passed && !regular_began {
                return step;
            }
        }
        Step::Passed
    }

    fn init(&mut self, container: &'a Container) -> Step {
        let Some(found) = self.current(container) else {
            self.start_anew(container);
            return Step::Blocked;
        };
        match found.state {
            ContainerState::Running => {
                self.resize(container, found);
                Step::Blocked
            }
            ContainerState::Exited if found.exit_code == 0 => Step::Passed,
            ContainerState::Exited if starts_again(self.snapshot.pod, container, found.exit_code) => {
                self.start_after_backoff(container, found);
                Step::Blocked
            }
            ContainerState::Exited => Step::Failed,
            ContainerState::Created | ContainerState::Unknown => {
                self.replace(
                    container,
                    found,
                    "Container is in unknown state, try killing it before restart",
                    None,
                );
                Step::Blocked
            }
        }
    }

    fn sidecar(&mut self, container: &'a Container) -> Step {
        let running = self.keep_running(container);
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
            if self.keep_running(container) || self.will_run(container) {
                kept += 1;
            }
        }
        if kept == 0 {
            self.plan.finish = true;
            self.plan.kill.clear();
            self.plan.start.clear();
            self.plan.resize.clear();
        }
    }

    fn will_run(&self, container: &Container) -> bool {
        self.plan.start.iter().any(|start| start.name == container.name)
            || self.plan.waiting.contains_key(&container.name)
    }

    /// Keeps a container running as its policy asks; says whether it runs now and may go on.
    fn keep_running(&mut self, container: &'a Container) -> bool {
        let pod = self.snapshot.pod;
        let Some(found) = self.current(container) else {
            let before = self.snapshot.observed.latest(&container.name);
            let stays_ended = |before: &ObservedContainer| {
                before.round == self.round && !starts_again(pod, container, before.exit_code)
            };
            if !before.is_some_and(stays_ended) {
                self.start_anew(container);
            }
            return false;
        };
        match found.state {
            ContainerState::Running => self.keep_or_replace(container, found),
            ContainerState::Exited if starts_again(pod, container, found.exit_code) => {
                self.start_after_backoff(container, found);
                false
            }
            ContainerState::Exited => false,
            ContainerState::Created | ContainerState::Unknown => {
                self.replace(
                    container,
                    found,
                    "Container is in unknown state, try killing it before restart",
                    None,
                );
                false
            }
        }
    }

    /// Leaves a running container alone, or stops it; says whether it may go on.
    fn keep_or_replace(&mut self, container: &'a Container, found: &ObservedContainer) -> bool {
        match self.fault(container, found) {
            None => {
                self.resize(container, found);
                true
            }
            Some(fault) if fault.restarts => {
                self.replace(container, found, &fault.message, fault.grace_seconds);
                false
            }
            Some(fault) => {
                self.kill(container, found, &fault.message, fault.grace_seconds);
                // It counts as running until it is seen to have ended.
                true
            }
        }
    }

    /// Reason for a running container to stop.
    fn fault(&self, container: &Container, found: &ObservedContainer) -> Option<Fault> {
        let name = &container.name;
        let changed = |message: String| {
            let (grace_seconds, restarts) = (None, true);
            Some(Fault {
                message,
                grace_seconds,
                restarts,
            })
        };
        if found.hash != container_hash(container) {
            return changed(format!("Container {name} definition changed, will be restarted"));
        }
        let (from, to) = self.amounts(container);
        if asks_for_restart(container, from, to) {
            return changed(format!("Container {name} resize requires restart"));
        }
        let restarts = RestartPolicy::of_container(self.snapshot.pod, container) != RestartPolicy::Never;
        let failed = |probe: &str, grace_seconds| {
            let and = if restarts { ", will be restarted" } else { "" };
            let message = format!("Container {name} failed {probe} probe{and}");
            Some(Fault {
                message,
                grace_seconds,
                restarts,
            })
        };
        let grace = |probe: &Option<k8s_openapi::api::core::v1::Probe>| {
            probe
                .as_ref()
                .and_then(|probe| probe.termination_grace_period_seconds)
        };
        if self.snapshot.probes.startup_failed(&found.id) {
            return failed("startup", grace(&container.startup_probe));
        }
        if self.snapshot.probes.liveness_failed(&found.id) {
            return failed("liveness", grace(&container.liveness_probe));
        }
        None
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
            remove: matches!(found.state, ContainerState::Created | ContainerState::Unknown),
        });
    }

    fn replace(
        &mut self,
        container: &Container,
        found: &ObservedContainer,
        message: &str,
        grace: Option<i64>,
    ) {
        self.kill(container, found, message, grace);
        self.start_after_backoff(container, found);
    }

    /// Starts what is not there in this sandbox and round. One that itself keeps starting all anew waits longer each time.
    fn start_anew(&mut self, container: &Container) {
        let before = self.snapshot.observed.latest(&container.name);
        let closed_a_round = |before: &&ObservedContainer| {
            before.round < self.round && restarts_all(container, before.exit_code)
        };
        match before.filter(closed_a_round) {
            Some(before) => self.start_after_backoff(container, before),
            None => self.start(container, before),
        }
    }

    fn start(&mut self, container: &Container, before: Option<&ObservedContainer>) {
        let latest = before.or_else(|| self.snapshot.observed.latest(&container.name));
        self.plan.start.push(Start {
            name: container.name.clone(),
            restart_count: latest.map_or(0, |latest| latest.restart_count + 1),
            round: self.round,
            ended_at: latest.and_then(|latest| latest.finished_at),
        });
    }

    fn start_after_backoff(&mut self, container: &Container, ended: &ObservedContainer) {
        let now = self.snapshot.now;
        let since = ended.finished_at.unwrap_or(now);
        let Some((delay, until)) = self.snapshot.backoff.waiting(&container.name, since, now) else {
            return self.start(container, Some(ended));
        };
        let message = format!(
            "back-off {} restarting failed container={} pod={}",
            go_duration(delay),
            container.name,
            full_name_with_uid(self.snapshot.pod)
        );
        self.plan
            .waiting
            .insert(container.name.clone(), ("CrashLoopBackOff".to_string(), message));
        self.plan.requeue_at = Some(self.plan.requeue_at.map_or(until, |other| other.min(until)));
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

/// As Go prints a duration of whole seconds: `10s`, `2m40s`, `5m0s`.
pub(crate) fn go_duration(duration: std::time::Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 60, seconds % 60) {
        (0, rest) => format!("{rest}s"),
        (minutes, rest) => format!("{minutes}m{rest}s"),
    }
}

/// The container of a name, of whatever kind.
pub(crate) fn container_named<'a>(pod: &'a Pod, name: &str) -> Option<(ContainerKind, Cow<'a, Container>)> {
    let lasting = all_containers(pod).map(|(kind, container)| (kind, Cow::Borrowed(container)));
    let ephemeral =
        ephemeral_containers(pod).map(|container| (ContainerKind::Ephemeral, Cow::Owned(container)));
    lasting
        .chain(ephemeral)
        .find(|(_, container)| container.name == name)
}
