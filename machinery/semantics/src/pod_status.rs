//! Is a pod ready, available, active, finished?

use crate::conditions::pod_condition;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// `Ready` is true.
pub fn is_ready(status: Option<&PodStatus>) -> bool {
    pod_condition(status, "Ready").is_some_and(|condition| condition.status == "True")
}

/// Time since which it is ready.
pub fn ready_since(status: Option<&PodStatus>) -> Option<Timestamp> {
    let ready = pod_condition(status, "Ready").filter(|condition| condition.status == "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// Ready for at least `min_ready_seconds`.
pub fn is_available(status: Option<&PodStatus>, min_ready_seconds: i32, now: Timestamp) -> bool {
    is_ready(status) && available_at(ready_since(status), min_ready_seconds).is_some_and(|at| at <= now)
}

/// Time at which a pod that is ready since `since` becomes available; now if no time has to pass.
pub fn available_at(since: Option<Timestamp>, min_ready_seconds: i32) -> Option<Timestamp> {
    if min_ready_seconds <= 0 {
        return Some(Timestamp::MIN);
    }
    since?
        .checked_add(SignedDuration::from_secs(i64::from(min_ready_seconds)))
        .ok()
}

/// Its containers have ended for good.
pub fn is_terminal_phase(phase: Option<&str>) -> bool {
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Reports whether a pod still counts for its controller: not finished, not being deleted.
pub fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !is_terminal_phase(phase) && pod.metadata.deletion_timestamp.is_none()
}
