//! Stopping: a container with its hook and its grace period, a sandbox with whatever runs in it.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use machinery_runtime::{CancellationToken, Runtime};
use node_cri::v1;

use super::control::ContainerControl;
use super::hooks;
use crate::api::events::EventType;
use crate::pods::container_named::container_named;
use crate::pods::spec;

/// Every container gets this long after TERM, as upstream's.
const GRACE_SECONDS_MIN: i64 = 2;

/// Choice to run a container's preStop hook before it is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hook {
    /// It runs.
    Run,
    /// It has run, or was ended before its time.
    Skip,
}

/// Options of stopping a container.
#[derive(Debug, Clone)]
pub(crate) struct Killing<'a> {
    /// The event's message; empty for upstream's own.
    pub(crate) why: &'a str,
    /// From the beginning of the hook to KILL.
    pub(crate) grace_seconds: i64,
    /// Its preStop hook.
    pub(crate) hook: Hook,
    /// Address of HTTP hooks.
    pub(crate) pod_ip: Option<&'a str>,
    /// Cancelled when those have stopped that stop before it.
    pub(crate) turn: Option<CancellationToken>,
}

impl<'a> Killing<'a> {
    /// Within a grace period, at once.
    pub(crate) fn within(grace_seconds: i64, pod_ip: Option<&'a str>) -> Self {
        Self {
            why: "",
            grace_seconds,
            hook: Hook::Run,
            pod_ip,
            turn: None,
        }
    }
}

impl ContainerControl {
    /// Stops and removes a sandbox; what is left of its containers goes with it.
    pub(crate) async fn remove_sandbox(&self, id: &str) -> Result<(), node_cri::CriError> {
        self.stop_sandbox(id).await?;
        let request = v1::RemovePodSandboxRequest {
            pod_sandbox_id: id.to_string(),
        };
        self.cri.remove_pod_sandbox(request).await.map(drop)
    }

    /// Stops a sandbox: its network and whatever runs in it.
    pub(crate) async fn stop_sandbox(&self, id: &str) -> Result<(), node_cri::CriError> {
        self.cri
            .stop_pod_sandbox(v1::StopPodSandboxRequest {
                pod_sandbox_id: id.to_string(),
            })
            .await
            .map(drop)
    }

    /// Stops a running container gracefully: preStop, its turn, TERM, and KILL when its time is up.
    pub(crate) async fn kill(&self, pod: &Pod, name: &str, id: &str, killing: Killing<'_>) {
        let message = match killing.why {
            "" => format!("Stopping container {name}"),
            why => why.to_owned(),
        };
        let began = self.runtime.monotonic();
        if killing.hook == Hook::Run {
            self.events
                .container(pod, name, EventType::Normal, "Killing", message);
            self.pre_stop(pod, name, id, &killing).await;
        }
        // The hook's time counts against the grace period, as upstream's.
        let left = |runtime: &Runtime| {
            let used = i64::try_from((runtime.monotonic() - began).as_secs()).unwrap_or(i64::MAX);
            killing.grace_seconds.saturating_sub(used).max(0)
        };
        if let Some(turn) = &killing.turn {
            let patience = Duration::from_secs(u64::try_from(left(&self.runtime)).unwrap_or(0));
            // Out of turn where its time is up.
            let _ = self.runtime.timeout(patience, turn.cancelled()).await;
        }
        // Also where the hook used all of it: the process gets a chance to end by itself.
        let grace = left(&self.runtime).max(GRACE_SECONDS_MIN);
        match self.cri.stop_container(id, grace).await {
            Err(error) if !error.is_not_found() => {
                tracing::warn!(pod = %crate::pods::full_name(pod), container = name, error = %error, "container not stopped");
            }
            _ => {}
        }
    }

    /// Runs the preStop hook, for no longer than the grace period.
    async fn pre_stop(&self, pod: &Pod, name: &str, id: &str, killing: &Killing<'_>) {
        let found = container_named(pod, name);
        let hook = found.as_ref().and_then(|(_, container)| {
            let hook = container.lifecycle.as_ref()?.pre_stop.as_ref()?;
            Some((container, hook))
        });
        let Some((container, hook)) = hook.filter(|_| killing.grace_seconds > 0) else {
            return;
        };
        let limit = Duration::from_secs(u64::try_from(killing.grace_seconds).unwrap_or(0));
        let running = hooks::run(
            &self.runtime,
            &self.cri,
            hook,
            (pod, container),
            id,
            killing.pod_ip,
            limit,
        );
        let outcome = self.runtime.timeout(limit, running).await;
        if let Ok(Err(message)) = outcome {
            tracing::warn!(pod = %crate::pods::full_name(pod), container = name, message, "preStop hook failed");
            let text = "PreStopHook failed";
            self.events
                .container(pod, name, EventType::Warning, "FailedPreStopHook", text);
        }
    }
}

/// Grace period of a pod in seconds: of its deletion, or else of its specification.
pub(crate) fn grace_period(pod: &Pod) -> i64 {
    let deletion = pod
        .metadata
        .deletion_timestamp
        .as_ref()
        .and(pod.metadata.deletion_grace_period_seconds);
    deletion
        .or(spec(pod).termination_grace_period_seconds)
        .unwrap_or(30)
}
