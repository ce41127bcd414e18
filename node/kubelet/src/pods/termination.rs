//! Taking a pod's processes down: its containers together, its sidecars after them, its sandbox last. All preStop hooks
//! run at the beginning, as upstream's.

use std::net::Ipv4Addr;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use machinery_runtime::CancellationToken;

use super::container_named::container_named;
use super::observed::{ObservedContainer, ObservedPod};
use super::{ContainerKind, spec, uid};
use crate::containers::control::ContainerControl;
use crate::containers::stopping::{Hook, Killing};

/// Stops everything of a pod that runs. Returns when nothing does.
pub(crate) async fn stop_all(
    control: &ContainerControl,
    pod: &Pod,
    observed: &ObservedPod,
    grace_seconds: i64,
    hook: Hook,
) -> Result<(), node_cri::CriError> {
    let ip = observed
        .sandbox()
        .and_then(|sandbox| sandbox.ips.first())
        .map(String::as_str);
    // Each stage gets the token of the one before it: all kills run at once, so that preStop hooks begin
    // together, and each waits for its turn with the signal alone.
    let mut turn = None;
    let mut stages = Vec::new();
    for stage in stages_of(pod, observed) {
        let stopped = CancellationToken::new();
        let killing = Killing {
            hook,
            turn: turn.replace(stopped.clone()),
            ..Killing::within(grace_seconds, ip)
        };
        stages.push(async move {
            let kills = stage
                .iter()
                .map(|found| control.kill(pod, &found.name, &found.id, killing.clone()));
            join_all(kills).await;
            stopped.cancel();
        });
    }
    join_all(stages).await;
    // Between containers and sandbox: no new connection reaches a pod that is ending, and the address is still
    // its own.
    release_host_ports(control, uid(pod), observed).await;
    // Last: the sandbox holds the network, which preStop hooks and grace periods need.
    for sandbox in observed.sandboxes.iter().filter(|sandbox| sandbox.ready) {
        control.stop_sandbox(&sandbox.id).await?;
    }
    Ok(())
}

/// Takes back what of the node leads to a pod. Its sandboxes have their addresses until they are stopped.
pub(crate) async fn release_host_ports(control: &ContainerControl, uid: &str, observed: &ObservedPod) {
    let addresses = observed.sandboxes.iter().flat_map(|sandbox| &sandbox.ips);
    let addresses: Vec<Ipv4Addr> = addresses.filter_map(|address| address.parse().ok()).collect();
    control.host_ports.release(uid, &addresses).await;
}

/// Containers that stop together, in order: sidecars one by one, the last first, after all others.
fn stages_of<'a>(pod: &Pod, observed: &'a ObservedPod) -> Vec<Vec<&'a ObservedContainer>> {
    let (sidecars, others): (Vec<_>, Vec<_>) = observed.running().partition(|found| is_sidecar(pod, found));
    let sidecars = last_first(pod, sidecars).into_iter().map(|found| vec![found]);
    std::iter::once(others).chain(sidecars).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::observed::ContainerState;

    #[test]
    fn sidecars_stop_after_the_others_the_last_first() {
        let sidecar = |name: &str| serde_json::json!({"name": name, "restartPolicy": "Always"});
        let pod: Pod = serde_json::from_value(serde_json::json!({"spec": {
            "initContainers": [sidecar("first"), {"name": "init"}, sidecar("second")],
            "containers": [{"name": "a"}, {"name": "b"}]
        }}))
        .unwrap();
        let running = |name: &str| ObservedContainer {
            name: name.to_owned(),
            state: ContainerState::Running,
            ..ObservedContainer::default()
        };
        let observed = ObservedPod {
            containers: ["first", "a", "second", "b"].map(running).into(),
            ..ObservedPod::default()
        };
        let stages = stages_of(&pod, &observed);
        let names: Vec<Vec<&str>> = stages
            .iter()
            .map(|stage| stage.iter().map(|found| found.name.as_str()).collect())
            .collect();
        assert_eq!(names, [vec!["a", "b"], vec!["second"], vec!["first"]]);
    }
}
