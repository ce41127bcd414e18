//! Usage of the node, its pods and their containers, gathered once for all formats.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use node_cri::{CriClient, CriError, v1};
use node_sys::cgroup::CgroupStats;

use super::listing::{ListedContainer, ListedPod, running_pods};
use crate::managers::ManagerContext;
use crate::pods::uid;

/// Requests of a list that the runtime cannot make.
const LIST_TRIES: u32 = 3;

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
    /// The runtime's id.
    pub(crate) id: String,
    /// Figures of its group that the runtime does not have.
    pub(crate) used: CgroupStats,
    /// Time at which it was created.
    pub(crate) started_at: Timestamp,
    pub(crate) stats: v1::ContainerStats,
}

pub(crate) async fn gather(context: &ManagerContext) -> Result<Figures, String> {
    let mut running = running(context).await.map_err(|error| error.message())?;
    let (cgroups, config) = (context.workers.control.cgroups.clone(), context.config.clone());
    let all = context.pods.list();
    let work = move || {
        let groups = config.groups();
        let pods = all.into_iter().filter_map(|pod| {
            let (started_at, mut containers) = running.remove(uid(&pod))?;
            // Of a pod that is starting or has ended only the sandbox is there: it uses nothing yet, or no more.
            if containers.is_empty() {
                return None;
            }
            for container in &mut containers {
                container.used = cgroups.stats(&groups.of_container(&pod, &container.id));
            }
            Some(PodFigures {
                used: cgroups.stats(&groups.of_pod(&pod)),
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
    let (pods, stats) = futures::try_join!(running_pods(cri), container_stats(cri))?;
    Ok(with_stats(pods, stats))
}

/// Figures of all containers. containerd 1.6 fails the whole list where one goes while it is made, so it is requested again:
/// a pod whose containers come and go takes the figures of no other.
async fn container_stats(cri: &CriClient) -> Result<Vec<v1::ContainerStats>, CriError> {
    let mut left = LIST_TRIES;
    loop {
        left -= 1;
        let listed = cri.list_container_stats(v1::ListContainerStatsRequest { filter: None });
        match listed.await {
            Err(error) if left > 0 && error.is_final() => {}
            listed => return listed.map(|listed| listed.stats),
        }
    }
}

/// A container that the runtime has no figures of has just begun or ended, and is left out.
fn with_stats(
    pods: HashMap<String, ListedPod>,
    stats: Vec<v1::ContainerStats>,
) -> HashMap<String, RunningPod> {
    let mut stats: HashMap<String, v1::ContainerStats> = stats
        .into_iter()
        .filter_map(|stats| Some((stats.attributes.as_ref()?.id.clone(), stats)))
        .collect();
    let mut figures = |container: ListedContainer| {
        Some(ContainerFigures {
            stats: stats.remove(&container.id)?,
            id: container.id,
            used: CgroupStats::default(),
            name: container.name,
            started_at: container.created_at,
        })
    };
    let pods = pods.into_iter().map(|(uid, pod)| {
        let containers = pod.containers.into_iter().filter_map(&mut figures).collect();
        (uid, (pod.created_at, containers))
    });
    pods.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    use crate::pods::observed::label;
    use crate::server::usage::listing::join;

    /// A runtime that gives each call this code, and counts the calls.
    fn failing(code: &'static str) -> (CriClient, Arc<AtomicU32>) {
        let calls = Arc::<AtomicU32>::default();
        let count = Arc::clone(&calls);
        let answer = move |_request| {
            count.fetch_add(1, Ordering::Relaxed);
            let answer = http::Response::builder().header("grpc-status", code);
            let answer = answer.header("content-type", "application/grpc");
            std::future::ready(Ok(answer.body(tonic::body::Body::empty()).unwrap()))
        };
        let transport = node_cri::Transport::new(tower::service_fn(answer));
        (CriClient::connect_through(transport, "/nowhere".into()), calls)
    }

    #[tokio::test]
    async fn metrics_that_the_runtime_cannot_list_are_requested_a_few_times() {
        // UNKNOWN is what containerd says where a container has gone; UNAVAILABLE has no answer of a runtime.
        for (code, expected) in [("2", 3), ("14", 1)] {
            let (cri, calls) = failing(code);
            assert!(container_stats(&cri).await.is_err());
            assert_eq!(calls.load(Ordering::Relaxed), expected, "{code}");
        }
    }

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
        let pods = with_stats(join(vec![sandbox], containers.clone()), all());
        let (started_at, found) = &pods["u"];
        assert_eq!(*started_at, Timestamp::from_second(1).unwrap());
        let expected = ContainerFigures {
            name: "main".to_owned(),
            id: "2".to_owned(),
            used: CgroupStats::default(),
            started_at: Timestamp::from_second(3).unwrap(),
            stats: stats("2"),
        };
        assert_eq!(found, &[expected]);
        // A pod whose sandbox has ended has ended as a whole.
        assert!(with_stats(join(Vec::new(), containers), all()).is_empty());
    }
}
