//! Ephemeral containers: put into a pod that runs, to look at it. Each is started once and never again.
//!
//! To the runtime they are containers like others; [`ephemeral_containers`] gives them in that form.

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod};

use super::spec;

/// The pod's ephemeral containers in order.
pub(crate) fn ephemeral_containers(pod: &Pod) -> impl Iterator<Item = Container> {
    listed(pod).map(as_container)
}

/// The container whose processes an ephemeral container is to see.
pub(crate) fn target_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let container = listed(pod).find(|container| container.name == name)?;
    let target = container.target_container_name.as_deref();
    target.filter(|target| !target.is_empty())
}

fn listed(pod: &Pod) -> impl Iterator<Item = &EphemeralContainer> {
    spec(pod).ephemeral_containers.iter().flatten()
}

/// Ports, probes and hooks stay behind: the API server refuses them in an ephemeral container.
fn as_container(from: &EphemeralContainer) -> Container {
    let from = from.clone();
    Container {
        args: from.args,
        command: from.command,
        env: from.env,
        env_from: from.env_from,
        image: from.image,
        image_pull_policy: from.image_pull_policy,
        name: from.name,
        resources: from.resources,
        security_context: from.security_context,
        stdin: from.stdin,
        stdin_once: from.stdin_once,
        termination_message_path: from.termination_message_path,
        termination_message_policy: from.termination_message_policy,
        tty: from.tty,
        volume_devices: from.volume_devices,
        volume_mounts: from.volume_mounts,
        working_dir: from.working_dir,
        ..Container::default()
    }
}
