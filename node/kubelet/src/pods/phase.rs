//! A pod's phase, from the states of its containers. Pure.

use super::restarts::{RESTARTING_ALL, starts_again};
use super::status::{StatusInput, terminated};
use super::{ContainerKind, init_kind, spec};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};

/// The phase, from the states of the containers alone; a pod that has ended stays as it ended.
pub(super) fn phase(
    input: &StatusInput<'_>,
    inits: &[ContainerStatus],
    regulars: &[ContainerStatus],
) -> &'static str {
    match input.previous.phase.as_deref() {
        Some("Failed") => return "Failed",
        Some("Succeeded") => return "Succeeded",
        _ => {}
    }
    let (mut pending_init, mut failed_init, mut sidecars_running) = (0, 0, 0);
    for (container, status) in spec(input.pod).init_containers.iter().flatten().zip(inits) {
        match (init_kind(container), terminated(status)) {
            (ContainerKind::Sidecar, ended) => {
                let began = status.started == Some(true) || ended.is_some();
                pending_init += u32::from(!began);
                sidecars_running += u32::from(is_running(status));
            }
            (_, Some(ended)) if ended.exit_code == 0 => {}
            (_, Some(ended)) if !starts_again(input.pod, container, ended.exit_code) => failed_init += 1,
            (_, _) => pending_init += 1,
        }
    }
    let regular_began = regulars.iter().any(|status| status.container_id.is_some());
    let running = regulars.iter().filter(|status| is_running(status)).count();
    let ended: Vec<&ContainerStateTerminated> = regulars.iter().filter_map(stopped).collect();
    let succeeded = ended.iter().filter(|state| state.exit_code == 0).count();
    let waiting = regulars.len() - running - ended.len();
    if failed_init > 0 {
        return "Failed";
    }
    if pending_init > 0 && !regular_began && !input.terminal {
        return "Pending";
    }
    if waiting > 0 {
        return if input.terminal && !ended.is_empty() {
            "Failed"
        } else {
            "Pending"
        };
    }
    if running > 0 {
        return "Running";
    }
    let goes_on = sidecars_running > 0 || !input.terminal && any_starts_again(input.pod, regulars);
    match goes_on {
        true => "Running",
        false if succeeded == ended.len() => "Succeeded",
        false => "Failed",
    }
}

/// Reports whether one of the containers that have stopped starts again, by itself or with all of its pod.
fn any_starts_again(pod: &Pod, regulars: &[ContainerStatus]) -> bool {
    let containers = &spec(pod).containers;
    regulars.iter().any(|status| {
        let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
        let with_all = waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some(RESTARTING_ALL));
        let own = containers.iter().find(|own| own.name == status.name);
        let alone = own
            .zip(stopped(status))
            .is_some_and(|(own, end)| starts_again(pod, own, end.exit_code));
        with_all || alone
    })
}

/// A container waiting to be started again counts as stopped, with how it ended last.
fn stopped(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    terminated(status).or_else(|| {
        let waits = status.state.as_ref()?.waiting.is_some();
        if waits {
            status.last_state.as_ref()?.terminated.as_ref()
        } else {
            None
        }
    })
}

fn is_running(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.running.is_some())
}
