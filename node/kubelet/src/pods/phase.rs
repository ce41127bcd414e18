//! A pod's phase, from the states of its containers. Pure.

use super::restarts::{RESTARTING_ALL, round, starts_again};
use super::status::{StatusInput, terminated};
use super::{ContainerKind, init_kind, spec};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};

/// The phase to report: a final one once nothing runs and all is given back, which others may take at its word; the one
/// before until then, as upstream's `mergePodStatus`.
pub(super) fn held(input: &StatusInput<'_>, phase: String) -> String {
    let previous = input.previous.phase.as_deref().unwrap_or("Pending");
    match is_final(&phase) && !is_final(previous) && !input.terminal {
        true => previous.to_owned(),
        false => phase,
    }
}

fn is_final(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

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
    let initialized = has_initialized(input);
    let inits = InitCounts::of(input, inits, initialized);
    let running = regulars.iter().filter(|status| is_running(status)).count();
    let ended: Vec<&ContainerStateTerminated> = regulars.iter().filter_map(stopped).collect();
    let succeeded = ended.iter().filter(|state| state.exit_code == 0).count();
    let waiting = regulars.len() - running - ended.len();
    if inits.failed > 0 {
        return "Failed";
    }
    if !input.terminal && (inits.pending > 0 || inits.sidecars_pending > 0 && !initialized) {
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
    let goes_on = inits.sidecars_running > 0 || !input.terminal && any_starts_again(input.pod, regulars);
    match goes_on {
        true => "Running",
        false if succeeded == ended.len() => "Succeeded",
        false => "Failed",
    }
}

/// Init containers by what they mean for the phase.
#[derive(Default)]
struct InitCounts {
    /// Containers that run, or did not yet.
    pending: u32,
    /// Containers that failed and do not run again.
    failed: u32,
    sidecars_pending: u32,
    sidecars_running: u32,
}

impl InitCounts {
    fn of(input: &StatusInput<'_>, statuses: &[ContainerStatus], initialized: bool) -> Self {
        let mut counts = Self::default();
        for (container, status) in spec(input.pod).init_containers.iter().flatten().zip(statuses) {
            let (runs, ended) = (is_running(status), stopped(status));
            match init_kind(container) {
                ContainerKind::Sidecar => {
                    let began = status.started == Some(true) || !runs && ended.is_some();
                    counts.sidecars_pending += u32::from(!began);
                    counts.sidecars_running += u32::from(runs);
                }
                // The runtime may forget one that has ended.
                _ if initialized && status.container_id.is_none() => {}
                _ => {
                    let failed = ended.filter(|ended| ended.exit_code != 0);
                    let for_good = failed.is_some_and(|ended| {
                        !waits_for_all(status) && !starts_again(input.pod, container, ended.exit_code)
                    });
                    counts.failed += u32::from(for_good);
                    counts.pending += u32::from(runs || ended.is_none());
                }
            }
        }
        counts
    }
}

/// Reports whether a regular container was made in the present sandbox and round, and so all init containers are done.
fn has_initialized(input: &StatusInput<'_>) -> bool {
    let round = round(input.pod, input.observed);
    let Some(sandbox) = input.observed.sandbox().filter(|sandbox| sandbox.ready) else {
        return false;
    };
    spec(input.pod).containers.iter().any(|container| {
        let found = input.observed.current(&container.name, &sandbox.id);
        found.is_some_and(|found| found.round == round)
    })
}

fn waits_for_all(status: &ContainerStatus) -> bool {
    let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
    waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some(RESTARTING_ALL))
}

/// Reports whether one of the containers that have stopped starts again, by itself or with all of its pod.
fn any_starts_again(pod: &Pod, regulars: &[ContainerStatus]) -> bool {
    let containers = &spec(pod).containers;
    regulars.iter().any(|status| {
        let own = containers.iter().find(|own| own.name == status.name);
        let alone = own
            .zip(stopped(status))
            .is_some_and(|(own, end)| starts_again(pod, own, end.exit_code));
        waits_for_all(status) || alone
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
