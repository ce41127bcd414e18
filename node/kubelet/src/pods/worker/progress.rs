//! Times of a pod's start and of its worker's rounds, for the figures of the node.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use machinery_runtime::Runtime;

use super::reporting::{has_begun, revision_of};
use super::{Next, PodWorker};
use crate::metrics::pods::{PodMetrics, PodStart};
use crate::pods::{ContainerKind, all_containers};

/// Progress of a pod that this agent starts.
#[derive(Debug)]
pub(super) struct Progress {
    /// Time at which the worker was given the pod.
    seen_at: Duration,
    /// An agent before this one had begun with the pod: its start is not measured.
    is_old: bool,
    runs: bool,
    is_up: bool,
    /// Time since which the API server has an older status.
    unwritten_since: Option<Duration>,
    /// Revision of the pod in the last round; `None` before the first.
    revision: Option<u64>,
}

impl Progress {
    pub(super) fn new(runtime: &Runtime, pod: &Pod) -> Self {
        Self {
            seen_at: runtime.monotonic(),
            is_old: has_begun(pod),
            runs: false,
            is_up: false,
            unwritten_since: None,
            revision: None,
        }
    }
}

/// A round that has begun.
#[derive(Debug, Clone, Copy)]
pub(super) struct SyncBegan {
    at: Duration,
    operation: &'static str,
}

impl PodWorker {
    pub(super) fn begin_sync(&mut self) -> SyncBegan {
        let (pod, at) = (self.pod(), self.context.runtime.monotonic());
        let revision = revision_of(&pod);
        let operation = match self.progress.revision.replace(revision) {
            None => {
                let since = at.saturating_sub(self.progress.seen_at);
                PodMetrics::of(&self.context.runtime).worker_began(&pod, since);
                "create"
            }
            Some(before) if before != revision => "update",
            Some(_) => "sync",
        };
        SyncBegan { at, operation }
    }

    pub(super) fn end_sync(&self, began: SyncBegan, next: Next) {
        let took = self.context.runtime.monotonic().saturating_sub(began.at);
        let operation = if next == Next::Done {
            "terminated"
        } else {
            began.operation
        };
        PodMetrics::of(&self.context.runtime).worked(operation, took);
    }

    /// A status is to be written.
    pub(super) fn status_changed(&mut self) {
        let now = self.context.runtime.monotonic();
        self.progress.unwritten_since.get_or_insert(now);
    }

    /// The API server has this status of the pod.
    pub(super) fn status_is_written(&mut self, pod: &Pod, status: &PodStatus) {
        let metrics = PodMetrics::of(&self.context.runtime);
        let now = self.context.runtime.monotonic();
        if let Some(since) = self.progress.unwritten_since.take() {
            metrics.status_written(now.saturating_sub(since));
        }
        if self.progress.is_old {
            return;
        }
        if !self.progress.runs && status.phase.as_deref() == Some("Running") {
            self.progress.runs = true;
            metrics.pod_runs(now.saturating_sub(self.progress.seen_at));
        }
        if self.progress.runs && !self.progress.is_up && all_started(status) {
            self.progress.is_up = true;
            let pulls = self.context.control.images.pull_time(&self.uid);
            if let Some(start) = start(pod, status, pulls, self.now()) {
                metrics.pod_is_up(pod, start);
            }
        }
    }
}

/// Reports whether each container has been started.
fn all_started(status: &PodStatus) -> bool {
    let mut all = status.container_statuses.iter().flatten();
    all.all(|own| {
        let running = own.state.as_ref().and_then(|state| state.running.as_ref());
        running.is_some_and(|running| running.started_at.is_some())
    })
}

fn start(pod: &Pod, status: &PodStatus, pulls: Duration, now: Timestamp) -> Option<PodStart> {
    let created = pod.metadata.creation_timestamp.as_ref()?.0;
    let between =
        |from: Timestamp, to: Timestamp| Duration::try_from(to.duration_since(from)).unwrap_or_default();
    // A sidecar does not end before the others begin.
    let is_init = |own: &&ContainerStatus| {
        let mut all = all_containers(pod);
        all.any(|(kind, container)| kind == ContainerKind::Init && container.name == own.name)
    };
    let inits = status.init_container_statuses.iter().flatten().filter(is_init);
    let ran = inits.filter_map(|own| {
        let ended = own.state.as_ref()?.terminated.as_ref()?;
        Some(between(
            ended.started_at.as_ref()?.0,
            ended.finished_at.as_ref()?.0,
        ))
    });
    Some(PodStart {
        total: between(created, now),
        pulls,
        inits: ran.sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pod_start_leaves_init_containers_out() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "initContainers": [{"name": "first"}, {"name": "beside", "restartPolicy": "Always"}],
                "containers": [{"name": "main"}],
            },
        }))
        .unwrap();
        let ended = |from: &str, to: &str| json!({"terminated": {"exitCode": 0, "startedAt": from, "finishedAt": to}});
        let status = |main: serde_json::Value| -> PodStatus {
            let own = |name: &str, state: serde_json::Value| json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state});
            serde_json::from_value(json!({
                "initContainerStatuses": [
                    own("first", ended("2026-01-01T00:00:01Z", "2026-01-01T00:00:04Z")),
                    own("beside", json!({"running": {"startedAt": "2026-01-01T00:00:05Z"}})),
                ],
                "containerStatuses": [own("main", main)],
            }))
            .unwrap()
        };
        assert!(!all_started(&status(json!({"waiting": {}}))));
        let status = status(json!({"running": {"startedAt": "2026-01-01T00:00:06Z"}}));
        assert!(all_started(&status));
        let now = "2026-01-01T00:00:10Z".parse().unwrap();
        let expected = PodStart {
            total: Duration::from_secs(10),
            pulls: Duration::from_secs(1),
            inits: Duration::from_secs(3),
        };
        assert_eq!(start(&pod, &status, Duration::from_secs(1), now), Some(expected));
    }
}
