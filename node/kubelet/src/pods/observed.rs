//! Observed state of one pod in the runtime, read again for every decision.

use std::collections::HashMap;

use futures::future::try_join_all;
use jiff::{SignedDuration, Timestamp};
use machinery_runtime::Runtime;
use node_cri::v1;
use node_cri::{CriClient, CriError};

use crate::containers::files::termination_message;

/// Labels of sandboxes and containers; upstream's names, so that `crictl` and others read them too.
pub(crate) mod label {
    /// The pod's name.
    pub(crate) const POD_NAME: &str = "io.kubernetes.pod.name";
    /// The pod's namespace.
    pub(crate) const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    /// The pod's uid.
    pub(crate) const POD_UID: &str = "io.kubernetes.pod.uid";
    /// The container's name.
    pub(crate) const CONTAINER_NAME: &str = "io.kubernetes.container.name";
}

/// Annotations of containers: what an agent that starts again must know of them.
pub(crate) mod annotation {
    /// Changes when the container has to be created again.
    pub(crate) const HASH: &str = "io.kubernetes.container.hash";
    /// Number of times that all containers of the pod were restarted before.
    pub(crate) const ROUND: &str = "io.knarr.container.round";
    /// Number of restarts.
    pub(crate) const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
    /// The machine's path of its termination message.
    pub(crate) const TERMINATION_MESSAGE: &str = "io.knarr.container.terminationMessageHostPath";
    /// Source of the message if the container left none.
    pub(crate) const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
}

/// State of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ContainerState {
    /// Made, not started.
    Created,
    /// Its process runs.
    Running,
    /// Its process has ended.
    Exited,
    /// The runtime does not know.
    #[default]
    Unknown,
}

/// One container the runtime has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ObservedContainer {
    /// The runtime's id.
    pub(crate) id: String,
    /// Its name in the pod.
    pub(crate) name: String,
    /// Its sandbox.
    pub(crate) sandbox_id: String,
    /// State of the container.
    pub(crate) state: ContainerState,
    /// Number of restarts before this container was created.
    pub(crate) restart_count: i32,
    /// Round of the pod in which it was created ([`super::restarts::round`]).
    pub(crate) round: u32,
    /// Time of creation.
    pub(crate) created_at: Timestamp,
    /// Time at which its process started.
    pub(crate) started_at: Option<Timestamp>,
    /// Time at which its process ended.
    pub(crate) finished_at: Option<Timestamp>,
    /// Exit code of its process.
    pub(crate) exit_code: i32,
    /// The runtime's word for how it ended.
    pub(crate) reason: String,
    /// Termination message of the container, or message of the runtime.
    pub(crate) message: String,
    /// The image as requested.
    pub(crate) image: String,
    /// The image as found.
    pub(crate) image_ref: String,
    /// See [`annotation::HASH`].
    pub(crate) hash: String,
    /// Its log, relative to the pod's log folder.
    pub(crate) log_path: String,
    /// The effective user of its first process, if the runtime reports it.
    pub(crate) user: Option<v1::LinuxContainerUser>,
}

/// Exit code of a process that was killed.
const KILLED: i32 = 137;
/// Time from a container's end in which the runtime may still learn that memory was the reason. Upstream's agent, which looks
/// once a second, leaves it as long.
const REASON_FINAL_AFTER: SignedDuration = SignedDuration::from_secs(1);

impl ObservedContainer {
    /// Reports whether the runtime may still name memory as the reason of this end: the kernel reports that by another
    /// way than of the end itself, and says `Error` until then.
    pub(crate) fn reason_may_change(&self, now: Timestamp) -> bool {
        let killed =
            self.state == ContainerState::Exited && self.exit_code == KILLED && self.reason == "Error";
        let age = self.finished_at.map(|at| now.duration_since(at));
        killed && age.is_some_and(|age| !age.is_negative() && age < REASON_FINAL_AFTER)
    }
}

/// One sandbox the runtime has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObservedSandbox {
    /// The runtime's id.
    pub(crate) id: String,
    /// Number of the attempt at a sandbox for this pod.
    pub(crate) attempt: u32,
    /// State of its pause process: true while it runs.
    pub(crate) ready: bool,
    /// Time of creation.
    pub(crate) created_at: i64,
    /// Its addresses; none with the node's network.
    pub(crate) ips: Vec<String>,
}

/// Everything the runtime has of one pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ObservedPod {
    /// Newest first.
    pub(crate) sandboxes: Vec<ObservedSandbox>,
    /// Newest first.
    pub(crate) containers: Vec<ObservedContainer>,
}

impl ObservedPod {
    /// The newest sandbox.
    pub(crate) fn sandbox(&self) -> Option<&ObservedSandbox> {
        self.sandboxes.first()
    }

    /// The newest container of a name.
    pub(crate) fn latest(&self, name: &str) -> Option<&ObservedContainer> {
        self.containers.iter().find(|container| container.name == name)
    }

    /// The newest container of a name, if it is in this sandbox.
    pub(crate) fn current(&self, name: &str, sandbox_id: &str) -> Option<&ObservedContainer> {
        self.latest(name)
            .filter(|container| container.sandbox_id == sandbox_id)
    }

    /// Containers whose sandbox is gone: of one that could not be made, a full disk leaves a record.
    pub(crate) fn without_sandbox(&self) -> impl Iterator<Item = &ObservedContainer> {
        self.containers.iter().filter(|container| {
            let mut sandboxes = self.sandboxes.iter();
            !sandboxes.any(|sandbox| sandbox.id == container.sandbox_id)
        })
    }

    /// The one before the newest of a name.
    pub(crate) fn previous(&self, name: &str) -> Option<&ObservedContainer> {
        self.containers
            .iter()
            .filter(|container| container.name == name)
            .nth(1)
    }

    /// Containers whose process runs.
    pub(crate) fn running(&self) -> impl Iterator<Item = &ObservedContainer> {
        self.containers
            .iter()
            .filter(|container| container.state == ContainerState::Running)
    }
}

/// Reads everything the runtime has of a pod.
pub(crate) async fn observe(runtime: &Runtime, cri: &CriClient, uid: &str) -> Result<ObservedPod, CriError> {
    let selector = HashMap::from([(label::POD_UID.to_string(), uid.to_string())]);
    let sandbox_filter = v1::PodSandboxFilter {
        label_selector: selector.clone(),
        ..v1::PodSandboxFilter::default()
    };
    let filter = v1::ContainerFilter {
        label_selector: selector,
        ..v1::ContainerFilter::default()
    };
    let (sandboxes, containers) = futures::try_join!(
        cri.list_pod_sandbox(v1::ListPodSandboxRequest {
            filter: Some(sandbox_filter)
        }),
        cri.list_containers(v1::ListContainersRequest { filter: Some(filter) }),
    )?;
    let sandboxes = try_join_all(
        sandboxes
            .items
            .into_iter()
            .map(|sandbox| read_sandbox(cri, sandbox.id)),
    );
    let containers = try_join_all(
        containers
            .containers
            .into_iter()
            .map(|found| read_container(cri, found.id, found.pod_sandbox_id)),
    );
    let (sandboxes, containers) = futures::try_join!(sandboxes, containers)?;
    let mut sandboxes: Vec<ObservedSandbox> = sandboxes.into_iter().flatten().collect();
    let mut containers = with_termination_messages(runtime, containers.into_iter().flatten().collect()).await;
    // Sorted here: the interface promises no order of lists, and `latest` and `previous` depend on it.
    sandboxes.sort_by_key(|sandbox| std::cmp::Reverse(sandbox.created_at));
    containers.sort_by_key(|container| std::cmp::Reverse(container.created_at));
    Ok(ObservedPod {
        sandboxes,
        containers,
    })
}

/// Observes a pod again without a list: reads the state of what the last observation found, but not of what had ended.
/// `None` if a sandbox or container is gone.
pub(crate) async fn observe_again(
    runtime: &Runtime,
    cri: &CriClient,
    last: &ObservedPod,
) -> Result<Option<ObservedPod>, CriError> {
    let sandboxes = last
        .sandboxes
        .iter()
        .map(|found| read_sandbox(cri, found.id.clone()));
    // The status of an ended container does not change any more, but for the reason (see `reason_may_change`).
    let changing = |found: &&ObservedContainer| found.state != ContainerState::Exited;
    let read = |found: &ObservedContainer| read_container(cri, found.id.clone(), found.sandbox_id.clone());
    let containers = last.containers.iter().filter(changing).map(read);
    let (sandboxes, read) = futures::try_join!(try_join_all(sandboxes), try_join_all(containers))?;
    let (Some(sandboxes), Some(read)) = (all(sandboxes), all(read)) else {
        return Ok(None);
    };
    let mut read = with_termination_messages(runtime, read).await.into_iter();
    let containers = last.containers.iter().map(|found| match changing(&found) {
        true => read.next(),
        false => Some(found.clone()),
    });
    Ok(Some(ObservedPod {
        sandboxes,
        containers: containers.flatten().collect(),
    }))
}

fn all<T>(found: Vec<Option<T>>) -> Option<Vec<T>> {
    found.into_iter().collect()
}

/// Returns `None` for a sandbox or container that was removed since the list.
fn gone<T>(result: Result<T, CriError>) -> Result<Option<T>, CriError> {
    match result {
        Err(error) if error.is_not_found() => Ok(None),
        other => other.map(Some),
    }
}

async fn read_sandbox(cri: &CriClient, id: String) -> Result<Option<ObservedSandbox>, CriError> {
    let request = v1::PodSandboxStatusRequest {
        pod_sandbox_id: id.clone(),
        verbose: false,
    };
    let Some(answer) = gone(cri.pod_sandbox_status(request).await)? else {
        return Ok(None);
    };
    let status = answer.status.unwrap_or_default();
    let network = status.network.unwrap_or_default();
    let additional = network.additional_ips.into_iter().map(|address| address.ip);
    let ips = std::iter::once(network.ip)
        .chain(additional)
        .filter(|ip| !ip.is_empty())
        .collect();
    Ok(Some(ObservedSandbox {
        ready: status.state == v1::PodSandboxState::SandboxReady as i32,
        attempt: status.metadata.map_or(0, |metadata| metadata.attempt),
        created_at: status.created_at,
        id,
        ips,
    }))
}

/// A container, and where it has left its termination message: its file, and its log where that may be taken instead.
type Found = (ObservedContainer, Option<(String, Option<String>)>);

async fn read_container(cri: &CriClient, id: String, sandbox_id: String) -> Result<Option<Found>, CriError> {
    let request = v1::ContainerStatusRequest {
        container_id: id,
        verbose: false,
    };
    let Some(answer) = gone(cri.container_status(request).await)? else {
        return Ok(None);
    };
    let status = answer.status.unwrap_or_default();
    Ok(Some(from_status(sandbox_id, status)))
}

/// Fills in the termination messages of ended containers.
async fn with_termination_messages(runtime: &Runtime, found: Vec<Found>) -> Vec<ObservedContainer> {
    let (mut containers, sources): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    if sources.iter().all(Option::is_none) {
        return containers;
    }
    let read = |(path, log): (String, Option<String>)| termination_message(&path, log.as_deref());
    let work = move || {
        sources
            .into_iter()
            .map(|sources| sources.and_then(read))
            .collect()
    };
    let messages: Vec<Option<String>> = runtime.blocking(work).await.unwrap_or_default();
    for (container, message) in containers.iter_mut().zip(messages) {
        container.message = message.unwrap_or(std::mem::take(&mut container.message));
    }
    containers
}

fn from_status(sandbox_id: String, status: v1::ContainerStatus) -> Found {
    let note = |name: &str| status.annotations.get(name).cloned().unwrap_or_default();
    let state = match status.state {
        state if state == v1::ContainerState::ContainerCreated as i32 => ContainerState::Created,
        state if state == v1::ContainerState::ContainerRunning as i32 => ContainerState::Running,
        state if state == v1::ContainerState::ContainerExited as i32 => ContainerState::Exited,
        _ => ContainerState::Unknown,
    };
    let container = ObservedContainer {
        sandbox_id,
        state,
        name: status
            .labels
            .get(label::CONTAINER_NAME)
            .cloned()
            .unwrap_or_default(),
        restart_count: note(annotation::RESTART_COUNT).parse().unwrap_or(0),
        round: note(annotation::ROUND).parse().unwrap_or(0),
        hash: note(annotation::HASH),
        created_at: time(status.created_at).unwrap_or_default(),
        started_at: time(status.started_at),
        finished_at: time(status.finished_at),
        exit_code: status.exit_code,
        message: status.message.clone(),
        reason: status.reason.clone(),
        image: status.image.clone().unwrap_or_default().image,
        image_ref: status.image_ref.clone(),
        log_path: status.log_path.clone(),
        user: status.user.clone().and_then(|user| user.linux),
        id: status.id.clone(),
    };
    let termination = (state == ContainerState::Exited).then(|| {
        let fallback = note(annotation::TERMINATION_MESSAGE_POLICY) == "FallbackToLogsOnError";
        let log = (fallback && container.exit_code != 0).then(|| container.log_path.clone());
        (note(annotation::TERMINATION_MESSAGE), log)
    });
    (container, termination)
}

fn time(nanoseconds: i64) -> Option<Timestamp> {
    if nanoseconds <= 0 {
        None
    } else {
        Timestamp::from_nanosecond(i128::from(nanoseconds)).ok()
    }
}
