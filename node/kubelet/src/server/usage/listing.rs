//! Pods that run, as the runtime lists them.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use node_cri::{CriClient, CriError, v1};

use crate::pods::observed::label;

/// A pod whose sandbox runs.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ListedPod {
    /// The runtime's id of its sandbox.
    pub(super) sandbox_id: String,
    /// Time at which the sandbox was created.
    pub(super) created_at: Timestamp,
    /// Containers that run, by name.
    pub(super) containers: Vec<ListedContainer>,
}

/// A container that runs.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ListedContainer {
    /// The runtime's id.
    pub(super) id: String,
    /// Its name in the pod.
    pub(super) name: String,
    /// The image that it was made of, as its pod named it then.
    pub(super) image: String,
    /// Time of creation.
    pub(super) created_at: Timestamp,
}

/// Numbers of what the runtime has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RuntimeCounts {
    /// Sandboxes that run.
    pub(crate) sandboxes: usize,
    /// Containers by state.
    pub(crate) containers: BTreeMap<&'static str, usize>,
}

/// Counts sandboxes and containers.
pub(super) async fn counts(cri: &CriClient) -> Result<RuntimeCounts, CriError> {
    let (sandboxes, containers) = futures::try_join!(
        cri.list_pod_sandbox(v1::ListPodSandboxRequest { filter: None }),
        cri.list_containers(v1::ListContainersRequest { filter: None }),
    )?;
    let ready = v1::PodSandboxState::SandboxReady as i32;
    let mut counts = RuntimeCounts {
        sandboxes: sandboxes.items.iter().filter(|own| own.state == ready).count(),
        ..RuntimeCounts::default()
    };
    for container in containers.containers {
        let state = match v1::ContainerState::try_from(container.state) {
            Ok(v1::ContainerState::ContainerCreated) => "created",
            Ok(v1::ContainerState::ContainerRunning) => "running",
            Ok(v1::ContainerState::ContainerExited) => "exited",
            _ => "unknown",
        };
        *counts.containers.entry(state).or_default() += 1;
    }
    Ok(counts)
}

/// Lists the running pods by uid.
pub(super) async fn running_pods(cri: &CriClient) -> Result<HashMap<String, ListedPod>, CriError> {
    let ready = v1::PodSandboxStateValue {
        state: v1::PodSandboxState::SandboxReady as i32,
    };
    let sandboxes = v1::PodSandboxFilter {
        state: Some(ready),
        ..v1::PodSandboxFilter::default()
    };
    let (sandboxes, containers) = futures::try_join!(
        cri.list_pod_sandbox(v1::ListPodSandboxRequest {
            filter: Some(sandboxes)
        }),
        cri.list_containers(v1::ListContainersRequest { filter: None }),
    )?;
    Ok(join(sandboxes.items, containers.containers))
}

/// Name of a container's image as its pod had it, else as the runtime has it.
pub(in crate::server) fn named_image(image: v1::ImageSpec) -> String {
    match image.user_specified_image.is_empty() {
        true => image.image,
        false => image.user_specified_image,
    }
}

/// Upstream's rule: an ended container uses nothing and is left out.
pub(super) fn join(
    sandboxes: Vec<v1::PodSandbox>,
    containers: Vec<v1::Container>,
) -> HashMap<String, ListedPod> {
    let time = |nanoseconds: i64| Timestamp::from_nanosecond(i128::from(nanoseconds)).unwrap_or_default();
    let owner = |labels: &HashMap<String, String>| labels.get(label::POD_UID).cloned();
    let mut pods: HashMap<String, ListedPod> = sandboxes
        .into_iter()
        .filter_map(|sandbox| {
            let pod = ListedPod {
                created_at: time(sandbox.created_at),
                sandbox_id: sandbox.id,
                containers: Vec::new(),
            };
            Some((owner(&sandbox.labels)?, pod))
        })
        .collect();
    for container in containers {
        let runs = container.state == v1::ContainerState::ContainerRunning as i32;
        let pod = owner(&container.labels).and_then(|uid| pods.get_mut(&uid));
        if let (true, Some(pod)) = (runs, pod) {
            let name = container.labels.get(label::CONTAINER_NAME).cloned();
            pod.containers.push(ListedContainer {
                id: container.id,
                name: name.unwrap_or_default(),
                image: container.image.map(named_image).unwrap_or_default(),
                created_at: time(container.created_at),
            });
        }
    }
    for pod in pods.values_mut() {
        pod.containers.sort_by(|one, other| one.name.cmp(&other.name));
    }
    pods
}
