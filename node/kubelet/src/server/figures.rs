//! Usage of the node, its pods and their containers, gathered once for all formats.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use node_cri::{CriError, v1};
use node_sys::cgroup::CgroupStats;

use crate::containers::resources::pod_cgroup;
use crate::managers::ManagerContext;
use crate::pods::observed::label;
use crate::pods::uid;

/// Everything at one moment.
#[derive(Debug)]
pub(crate) struct Figures {
    /// Time of the figures.
    pub(crate) now: Timestamp,
    /// Time at which the machine started.
    pub(crate) booted_at: Timestamp,
    pub(crate) node: CgroupStats,
    /// Those that run.
    pub(crate) pods: Vec<PodFigures>,
}

#[derive(Debug)]
pub(crate) struct PodFigures {
    pub(crate) pod: Arc<Pod>,
    /// Time at which its sandbox was created.
    pub(crate) started_at: Timestamp,
    pub(crate) used: CgroupStats,
    /// Those that run, by name.
    pub(crate) containers: Vec<ContainerFigures>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct ContainerFigures {
    pub(crate) name: String,
    /// Time at which it was created.
    pub(crate) started_at: Timestamp,
    pub(crate) stats: v1::ContainerStats,
}

pub(crate) async fn gather(context: &ManagerContext) -> Result<Figures, String> {
    let mut running = running(context).await.map_err(|error| error.message())?;
    let (cgroups, root) = (
        context.workers.control.cgroups.clone(),
        context.config.cgroup_root.clone(),
    );
    let all = context.pods.list();
    let work = move || {
        let pods = all.into_iter().filter_map(|pod| {
            let (started_at, containers) = running.remove(uid(&pod))?;
            // Of a pod that is starting or has ended only the sandbox is there: it uses nothing yet, or no more.
            if containers.is_empty() {
                return None;
            }
            Some(PodFigures {
                used: cgroups.stats(&pod_cgroup(&root, &pod)),
                pod,
                started_at,
                containers,
            })
        });
        (pods.collect(), cgroups.stats("/"))
    };
    let (pods, node) = context
        .runtime
        .blocking(work)
        .await
        .map_err(|error| error.to_string())?;
    Ok(Figures {
        now: context.runtime.now(),
        booted_at: Timestamp::from_second(context.facts.machine.booted_at_seconds).unwrap_or_default(),
        pods,
        node,
    })
}

/// Creation time of a pod's sandbox, and its containers.
type RunningPod = (Timestamp, Vec<ContainerFigures>);

/// Reads the running pods from the runtime, by uid.
async fn running(context: &ManagerContext) -> Result<HashMap<String, RunningPod>, CriError> {
    let cri = &context.workers.control.cri;
    let ready = v1::PodSandboxStateValue {
        state: v1::PodSandboxState::SandboxReady as i32,
    };
    let sandboxes = v1::PodSandboxFilter {
        state: Some(ready),
        ..v1::PodSandboxFilter::default()
    };
    let (sandboxes, containers, stats) = futures::try_join!(
        cri.list_pod_sandbox(v1::ListPodSandboxRequest {
            filter: Some(sandboxes)
        }),
        cri.list_containers(v1::ListContainersRequest { filter: None }),
        cri.list_container_stats(v1::ListContainerStatsRequest { filter: None }),
    )?;
    Ok(join(sandboxes.items, containers.containers, stats.stats))
}

/// Upstream's rule: an ended container uses nothing and is left out.
fn join(
    sandboxes: Vec<v1::PodSandbox>,
    containers: Vec<v1::Container>,
    stats: Vec<v1::ContainerStats>,
) -> HashMap<String, RunningPod> {
    let time = |nanoseconds: i64| Timestamp::from_nanosecond(i128::from(nanoseconds)).unwrap_or_default();
    let owner = |labels: &HashMap<String, String>| labels.get(label::POD_UID).cloned();
    let mut stats: HashMap<String, v1::ContainerStats> = stats
        .into_iter()
        .filter_map(|stats| Some((stats.attributes.as_ref()?.id.clone(), stats)))
        .collect();
    let mut pods: HashMap<String, RunningPod> = sandboxes
        .into_iter()
        .filter_map(|sandbox| Some((owner(&sandbox.labels)?, (time(sandbox.created_at), Vec::new()))))
        .collect();
    for container in containers {
        let runs = container.state == v1::ContainerState::ContainerRunning as i32;
        let pod = owner(&container.labels).and_then(|uid| pods.get_mut(&uid));
        if let (true, Some((_, list)), Some(stats)) = (runs, pod, stats.remove(&container.id)) {
            list.push(ContainerFigures {
                name: container
                    .labels
                    .get(label::CONTAINER_NAME)
                    .cloned()
                    .unwrap_or_default(),
                started_at: time(container.created_at),
                stats,
            });
        }
    }
    for (_, list) in pods.values_mut() {
        list.sort_by(|one, other| one.name.cmp(&other.name));
    }
    pods
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_ended_containers_are_left_out() {
        let labels = |name: &str| {
            HashMap::from([
                (label::POD_UID.to_owned(), "u".to_owned()),
                (label::CONTAINER_NAME.to_owned(), name.to_owned()),
            ])
        };
        let container = |id: &str, name: &str, state: v1::ContainerState, created_at| v1::Container {
            id: id.to_owned(),
            labels: labels(name),
            state: state as i32,
            created_at,
            ..v1::Container::default()
        };
        let stats = |id: &str| v1::ContainerStats {
            attributes: Some(v1::ContainerAttributes {
                id: id.to_owned(),
                ..v1::ContainerAttributes::default()
            }),
            ..v1::ContainerStats::default()
        };
        let sandbox = v1::PodSandbox {
            labels: labels(""),
            created_at: 1_000_000_000,
            ..v1::PodSandbox::default()
        };
        let (running, exited) = (
            v1::ContainerState::ContainerRunning,
            v1::ContainerState::ContainerExited,
        );
        let containers = vec![
            container("1", "main", exited, 2_000_000_000),
            container("2", "main", running, 3_000_000_000),
            container("3", "init", exited, 2_000_000_000),
        ];
        let all = || vec![stats("1"), stats("2"), stats("3")];
        let pods = join(vec![sandbox], containers.clone(), all());
        let (started_at, found) = &pods["u"];
        assert_eq!(*started_at, Timestamp::from_second(1).unwrap());
        let expected = ContainerFigures {
            name: "main".to_owned(),
            started_at: Timestamp::from_second(3).unwrap(),
            stats: stats("2"),
        };
        assert_eq!(found, &[expected]);
        // A pod whose sandbox has ended has ended as a whole.
        assert!(join(Vec::new(), containers, all()).is_empty());
    }
}
