//! A pod's status from what was observed. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, ContainerUser, HostIP, LinuxContainerUser, Pod, PodIP, PodStatus,
    VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::conditions::{conditions, round_stage};
use super::disruption::Failure;
use super::ephemeral::ephemeral_containers;
use super::observed::{ContainerState, ObservedContainer, ObservedPod};
use super::phase::{held, phase};
use super::resize::actual::ResourceView;
use super::restarts::{RESTARTING_ALL, RESTARTING_ALL_MESSAGE, RoundStage, round};
use super::unknown_ends::{end_all, unknown_end};
use super::{ContainerKind, all_containers, spec};
use crate::api::printable;
use crate::probes::ProbeView;

/// Everything a status is made from.
#[derive(Debug)]
pub(crate) struct StatusInput<'a> {
    /// The pod as the API server has it.
    pub(crate) pod: &'a Pod,
    /// The status last written, or the API server's.
    pub(crate) previous: &'a PodStatus,
    /// Sandboxes and containers of the pod.
    pub(crate) observed: &'a ObservedPod,
    /// Reason and message of waiting containers, by name.
    pub(crate) waiting: &'a BTreeMap<String, (String, String)>,
    /// State of its resources.
    pub(crate) resources: ResourceView<'a>,
    /// Results of probes.
    pub(crate) probes: &'a ProbeView,
    /// The node's address.
    pub(crate) node_ip: IpAddr,
    /// The container runtime's name, which ids of containers begin with.
    pub(crate) runtime_name: &'a str,
    /// Nothing of the pod runs or will be started any more, and what it held of the node is given back.
    pub(crate) terminal: bool,
    /// A failure of the pod as a whole.
    pub(crate) failure: Option<&'a Failure>,
    /// The time of the observation.
    pub(crate) now: Timestamp,
}

/// Makes it.
pub(crate) fn generate(input: &StatusInput<'_>) -> PodStatus {
    // From the previous one: fields that only others write (`nominatedNodeName`, `resourceClaimStatuses`, the
    // class) stay.
    let mut status = input.previous.clone();
    let (inits, regulars): (Vec<_>, Vec<_>) =
        all_containers(input.pod).partition(|(kind, _)| *kind != ContainerKind::Regular);
    // Containers of an earlier round count as removed once all of them have ended.
    let round = match round_stage(input) {
        RoundStage::Ending => 0,
        RoundStage::Begun | RoundStage::Ended => round(input.pod, input.observed),
    };
    let make = |list: Vec<(ContainerKind, &Container)>| -> Vec<ContainerStatus> {
        list.into_iter()
            .map(|(kind, container)| container_status(input, kind, container, round))
            .collect()
    };
    let inits = make(inits);
    let regulars = by_name(make(regulars));
    let ephemerals = ephemeral_containers(input.pod)
        .map(|container| container_status(input, ContainerKind::Ephemeral, &container, 0));
    let ephemerals = by_name(ephemerals.collect());
    status.phase = Some(phase(input, &inits, &regulars).to_string());
    // Its reason is reported with the final phase only.
    if let Some(failure) = input.failure.filter(|_| input.terminal) {
        status.phase = Some("Failed".into());
        status.reason = Some(failure.reason.clone());
        status.message = Some(failure.message.clone());
    }
    status.init_container_statuses = (!inits.is_empty()).then_some(inits);
    status.container_statuses = (!regulars.is_empty()).then_some(regulars);
    status.ephemeral_container_statuses = (!ephemerals.is_empty()).then_some(ephemerals);
    if was_rejected(input) {
        status.init_container_statuses = None;
        status.container_statuses = None;
        status.ephemeral_container_statuses = None;
    }
    if input.terminal {
        end_all(input.pod, &mut status);
    }
    addresses(input, &mut status);
    status.start_time = status.start_time.or(Some(seconds(input.now)));
    status.observed_generation = input.pod.metadata.generation;
    // The conditions are of how it ends, the phase is not before all is given back.
    status.conditions = Some(conditions(input, &status));
    status.phase = status.phase.map(|phase| held(input, phase));
    status
}

/// Nothing of the pod was ever made here: there is nothing to say of its containers.
fn was_rejected(input: &StatusInput<'_>) -> bool {
    let never_reported = input.previous.container_statuses.is_none();
    let never_made = input.observed.sandboxes.is_empty() && input.observed.containers.is_empty();
    input.terminal && input.failure.is_some() && never_reported && never_made
}

/// Sorts statuses by name; only those of init containers come in the order of the specification, as upstream's.
fn by_name(mut statuses: Vec<ContainerStatus>) -> Vec<ContainerStatus> {
    statuses.sort_by(|a, b| a.name.cmp(&b.name));
    statuses
}

pub(super) fn seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

fn addresses(input: &StatusInput<'_>, status: &mut PodStatus) {
    let host = input.node_ip.to_string();
    status.host_ips = Some(vec![HostIP { ip: host.clone() }]);
    status.host_ip = Some(host.clone());
    let sandbox = input.observed.sandbox();
    let ips = match sandbox {
        Some(_) if spec(input.pod).host_network == Some(true) => vec![host],
        Some(sandbox) => sandbox.ips.clone(),
        None => Vec::new(),
    };
    // A pod that has ended keeps the address it had.
    if let Some(first) = ips.first() {
        status.pod_ip = Some(first.clone());
        status.pod_ips = Some(ips.into_iter().map(|ip| PodIP { ip }).collect());
    }
}

fn container_status(
    input: &StatusInput<'_>,
    kind: ContainerKind,
    container: &Container,
    round: u32,
) -> ContainerStatus {
    let latest = input.observed.latest(&container.name);
    let before = previous_status(input.previous, kind, &container.name);
    let Some(latest) = latest else {
        return without_container(input, kind, container, before);
    };
    let mut status = ContainerStatus {
        name: container.name.clone(),
        image: if latest.image.is_empty() {
            image_of(container)
        } else {
            latest.image.clone()
        },
        image_id: latest.image_ref.clone(),
        container_id: Some(full_id(input, latest)),
        restart_count: latest.restart_count,
        state: Some(api_state(input, latest, before)),
        last_state: last_state(input, container, before),
        volume_mounts: volume_mounts(container),
        user: latest.user.as_ref().map(user),
        allocated_resources: container
            .resources
            .as_ref()
            .and_then(|resources| resources.requests.clone()),
        ..ContainerStatus::default()
    };
    let running = latest.state == ContainerState::Running;
    status.resources = Some(match running {
        true => input.resources.running(container, &latest.id),
        false => container.resources.clone().unwrap_or_default(),
    });
    let started = running && input.probes.started(&latest.id, container);
    status.started = has_readiness(kind).then_some(started);
    status.ready = match kind {
        ContainerKind::Init => latest.state == ContainerState::Exited && latest.exit_code == 0,
        _ => has_readiness(kind) && started && input.probes.ready(&latest.id, container),
    };
    let removed = latest.round < round;
    status.restart_count += i32::from(removed);
    let of_earlier_round = removed.then_some((RESTARTING_ALL, RESTARTING_ALL_MESSAGE));
    let given = input.waiting.get(&container.name);
    let waits = given.map(|(reason, message)| (reason.as_str(), message.as_str()));
    // A container that waits for its restart shows how it ended in `lastState`, as in upstream's
    // `convertToAPIContainerStatuses`.
    if let (Some((reason, message)), false) = (waits.or(of_earlier_round), running || input.terminal) {
        let ended = status.state.take().filter(|state| state.terminated.is_some());
        status.last_state = ended.or(status.last_state);
        status.state = Some(waiting(reason, message));
    }
    status
}

/// An ephemeral container delays nothing.
fn has_readiness(kind: ContainerKind) -> bool {
    kind != ContainerKind::Ephemeral
}

/// The runtime has no container of this name (yet, or any more).
fn without_container(
    input: &StatusInput<'_>,
    kind: ContainerKind,
    container: &Container,
    before: Option<&ContainerStatus>,
) -> ContainerStatus {
    if let Some(before) = before
        && before
            .state
            .as_ref()
            .is_some_and(|state| state.terminated.is_some() || state.running.is_some())
        && (input.terminal || input.observed.sandbox().is_none())
    {
        return lost(kind, before);
    }
    let has_inits = spec(input.pod)
        .init_containers
        .as_ref()
        .is_some_and(|list| !list.is_empty());
    let default = if has_inits && kind == ContainerKind::Regular {
        "PodInitializing"
    } else {
        "ContainerCreating"
    };
    let state = match input.waiting.get(&container.name) {
        Some((reason, message)) => waiting(reason, message),
        None if has_inits && kind != ContainerKind::Regular => waiting("PodInitializing", ""),
        None => waiting(default, ""),
    };
    ContainerStatus {
        name: container.name.clone(),
        image: image_of(container),
        state: Some(state),
        last_state: Some(ApiState::default()),
        started: has_readiness(kind).then_some(false),
        volume_mounts: volume_mounts(container),
        ..ContainerStatus::default()
    }
}

/// A container that ran and that the runtime no longer knows ended in an unknown way.
fn lost(kind: ContainerKind, before: &ContainerStatus) -> ContainerStatus {
    let mut status = before.clone();
    status.ready = false;
    status.started = has_readiness(kind).then_some(false);
    if status.state.as_ref().is_some_and(|state| state.running.is_some()) {
        status.state = Some(unknown_end(status.container_id.clone()));
    }
    status
}

fn previous_status<'a>(
    status: &'a PodStatus,
    kind: ContainerKind,
    name: &str,
) -> Option<&'a ContainerStatus> {
    let list = match kind {
        ContainerKind::Init | ContainerKind::Sidecar => &status.init_container_statuses,
        ContainerKind::Regular => &status.container_statuses,
        ContainerKind::Ephemeral => &status.ephemeral_container_statuses,
    };
    list.iter().flatten().find(|found| found.name == name)
}

fn image_of(container: &Container) -> String {
    container.image.clone().unwrap_or_default()
}

fn waiting(reason: &str, message: &str) -> ApiState {
    let message = (!message.is_empty()).then(|| printable(message).into_owned());
    let waiting = ContainerStateWaiting {
        reason: Some(reason.to_string()),
        message,
    };
    ApiState {
        waiting: Some(waiting),
        ..ApiState::default()
    }
}

fn full_id(input: &StatusInput<'_>, container: &ObservedContainer) -> String {
    format!("{}://{}", input.runtime_name, container.id)
}

fn api_state(
    input: &StatusInput<'_>,
    container: &ObservedContainer,
    before: Option<&ContainerStatus>,
) -> ApiState {
    match container.state {
        ContainerState::Running => ApiState {
            running: Some(ContainerStateRunning {
                started_at: container.started_at.map(seconds),
            }),
            ..ApiState::default()
        },
        ContainerState::Exited => ended(input, container, before),
        ContainerState::Created | ContainerState::Unknown => waiting("ContainerCreating", ""),
    }
}

/// Terminated state of a container. A state that was reported once stays: the termination message goes with the pod's folder.
fn ended(
    input: &StatusInput<'_>,
    container: &ObservedContainer,
    before: Option<&ContainerStatus>,
) -> ApiState {
    let id = full_id(input, container);
    let reported = before.and_then(|before| reported_end(before, &id));
    let terminated = reported.cloned().unwrap_or_else(|| observed_end(container, id));
    ApiState {
        terminated: Some(terminated),
        ..ApiState::default()
    }
}

fn reported_end<'a>(before: &'a ContainerStatus, id: &str) -> Option<&'a ContainerStateTerminated> {
    let states = [&before.state, &before.last_state];
    let mut ends = states
        .into_iter()
        .filter_map(|state| state.as_ref()?.terminated.as_ref());
    ends.find(|end| end.container_id.as_deref() == Some(id))
}

fn observed_end(container: &ObservedContainer, id: String) -> ContainerStateTerminated {
    let reason = match (container.exit_code, container.reason.as_str()) {
        // Whatever the runtime says: upstream's reasons are these two, unless the runtime names one
        // (`OOMKilled`).
        (0, _) => "Completed".to_string(),
        (_, "") => "Error".to_string(),
        (_, reason) => reason.to_string(),
    };
    ContainerStateTerminated {
        exit_code: container.exit_code,
        reason: Some(reason),
        message: (!container.message.is_empty()).then(|| container.message.clone()),
        // Of one that could not be started the runtime says 0 for when it did, and so does upstream's agent.
        started_at: Some(seconds(container.started_at.unwrap_or(Timestamp::UNIX_EPOCH))),
        finished_at: Some(seconds(container.finished_at.unwrap_or(Timestamp::UNIX_EPOCH))),
        container_id: Some(id),
        signal: None,
    }
}

fn last_state(
    input: &StatusInput<'_>,
    container: &Container,
    before: Option<&ContainerStatus>,
) -> Option<ApiState> {
    if let Some(previous) = input.observed.previous(&container.name)
        && previous.state == ContainerState::Exited
    {
        return Some(ended(input, previous, before));
    }
    // The container before the newest may have been collected; its reported state stands.
    before
        .and_then(|before| before.last_state.clone())
        .or_else(|| Some(ApiState::default()))
}

fn user(user: &node_cri::v1::LinuxContainerUser) -> ContainerUser {
    let groups = (!user.supplemental_groups.is_empty()).then(|| user.supplemental_groups.clone());
    ContainerUser {
        linux: Some(LinuxContainerUser {
            uid: user.uid,
            gid: user.gid,
            supplemental_groups: groups,
        }),
    }
}

fn volume_mounts(container: &Container) -> Option<Vec<VolumeMountStatus>> {
    let mounts: Vec<VolumeMountStatus> = container
        .volume_mounts
        .iter()
        .flatten()
        .map(|mount| VolumeMountStatus {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only: mount.read_only,
            recursive_read_only: (mount.read_only == Some(true)).then(|| "Disabled".to_string()),
            ..VolumeMountStatus::default()
        })
        .collect();
    (!mounts.is_empty()).then_some(mounts)
}

pub(super) fn terminated(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    status.state.as_ref()?.terminated.as_ref()
}
