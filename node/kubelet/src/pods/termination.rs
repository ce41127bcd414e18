//! Taking a pod's processes down: its containers together, its sidecars after them, its sandbox last.

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;

use super::observed::{ObservedContainer, ObservedPod};
use super::plan::container_named;
use super::{ContainerKind, spec};
use crate::containers::control::{ContainerControl, grace_period};

/// Stops everything of a pod that runs. Returns when nothing does.
pub async fn stop_all(
    control: &ContainerControl,
    pod: &Pod,
    observed: &ObservedPod,
    grace_seconds: Option<i64>,
) -> Result<(), node_cri::CriError> {
    let grace = grace_seconds.unwrap_or_else(|| grace_period(pod));
    let began = control.runtime.monotonic();
    let ip = observed
        .sandbox()
        .and_then(|sandbox| sandbox.ips.first())
        .map(String::as_str);
    let (sidecars, others): (Vec<_>, Vec<_>) = observed.running().partition(|found| is_sidecar(pod, found));
    join_all(
        others
            .iter()
            .map(|found| control.kill(pod, &found.name, &found.id, "", Some(grace), ip)),
    )
    .await;
    for found in last_first(pod, sidecars) {
        let used = i64::try_from((control.runtime.monotonic() - began).as_secs()).unwrap_or(grace);
        control
            .kill(pod, &found.name, &found.id, "", Some((grace - used).max(0)), ip)
            .await;
    }
    for sandbox in observed.sandboxes.iter().filter(|sandbox| sandbox.ready) {
        control.stop_sandbox(&sandbox.id).await?;
    }
    Ok(())
}

/// Stops what still runs within a shorter time than it was first given.
pub async fn hurry(control: &ContainerControl, observed: &ObservedPod, grace_seconds: i64) {
    let stops = observed
        .running()
        .map(|found| control.cri.stop_container(&found.id, grace_seconds));
    for outcome in join_all(stops).await {
        if let Err(error) = outcome {
            tracing::debug!(error = %error, "container not stopped sooner");
        }
    }
}

fn is_sidecar(pod: &Pod, found: &ObservedContainer) -> bool {
    container_named(pod, &found.name).is_some_and(|(kind, _)| kind == ContainerKind::Sidecar)
}

fn last_first<'a>(pod: &Pod, mut sidecars: Vec<&'a ObservedContainer>) -> Vec<&'a ObservedContainer> {
    let order = |found: &ObservedContainer| {
        spec(pod)
            .init_containers
            .iter()
            .flatten()
            .position(|container| container.name == found.name)
    };
    sidecars.sort_by_key(|found| std::cmp::Reverse(order(found)));
    sidecars
}
