//! Ends of containers that nothing is known of, in the status of a pod that has ended.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodStatus};

use super::status::terminated;
use super::{ContainerKind, init_kind, is_static, spec};

/// Returns the state of a container that the runtime did not have when its pod ended, and that may have had an ID.
pub(super) fn unknown_end(container_id: Option<String>) -> ContainerState {
    let message = "The container could not be located when the pod was terminated";
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code: 137,
            reason: Some("ContainerStatusUnknown".into()),
            message: Some(message.into()),
            container_id,
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    }
}

/// Ends what the status of a pod of which nothing runs any more calls unfinished: nothing says that it went well.
///
/// Init containers after the last one that was started, and the regular ones behind them, keep waiting. Upstream:
/// `TerminatePod` in `pkg/kubelet/status/status_manager.go`.
pub(super) fn end_all(pod: &Pod, status: &mut PodStatus) {
    let has_begun = has_begun(pod, status);
    let inits = status.init_container_statuses.as_deref_mut().unwrap_or_default();
    let started = inits.iter().rposition(has_started).map_or(1, |last| last + 1);
    let regulars = status.container_statuses.as_deref_mut().unwrap_or_default();
    let regulars = regulars.iter_mut().take(if has_begun { usize::MAX } else { 0 });
    for container in inits.iter_mut().take(started).chain(regulars) {
        if terminated(container).is_none() {
            container.state = Some(unknown_end(None));
        }
    }
    let has_ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    if !has_ended && !is_static(pod) {
        status.phase = Some("Failed".into());
    }
}

/// Reports whether the pod came as far as its regular containers.
fn has_begun(pod: &Pod, status: &PodStatus) -> bool {
    let inits = spec(pod).init_containers.as_deref().unwrap_or_default();
    let Some(last) = inits.last() else {
        return true;
    };
    if status.container_statuses.iter().flatten().any(has_started) {
        return true;
    }
    let found = status.init_container_statuses.iter().flatten();
    let Some(found) = found.into_iter().find(|found| found.name == last.name) else {
        return false;
    };
    match init_kind(last) {
        ContainerKind::Sidecar => {
            let runs = found.state.as_ref().is_some_and(|state| state.running.is_some());
            runs && found.started == Some(true)
        }
        _ => [&found.state, &found.last_state].into_iter().any(|state| {
            let end = state.as_ref().and_then(|state| state.terminated.as_ref());
            end.is_some_and(|end| end.exit_code == 0)
        }),
    }
}

/// Reports whether the container runs, has ended, or ended once.
fn has_started(status: &ContainerStatus) -> bool {
    let waits = status.state.as_ref().is_some_and(|state| state.waiting.is_some());
    let ended_before = status
        .last_state
        .as_ref()
        .is_some_and(|last| last.terminated.is_some());
    !waits || ended_before
}
