//! Pods in a container runtime that is not the agent's own: removed through the runtime, and those alone whose folders the agent
//! has. The agent's own runtime goes with all that is in it.

use super::directory::Directories;
use super::files::entries;
use anyhow::Context;
use futures::{StreamExt, TryStreamExt};
use node_cri::{CriClient, v1};
use std::collections::BTreeSet;

/// Label of a sandbox with its pod's uid.
const UID_LABEL: &str = "io.kubernetes.pod.uid";
/// Sandboxes that are removed at a time.
const AT_ONCE: usize = 8;

/// Sandboxes of this cluster's pods.
#[derive(Debug, Default)]
pub(super) struct Pods {
    runtime: Option<CriClient>,
    sandboxes: Vec<String>,
}

impl Pods {
    /// Finds the pods in the runtime behind the socket, if one is given.
    pub(super) async fn find(endpoint: Option<&str>, directories: &Directories) -> anyhow::Result<Self> {
        let (Some(endpoint), Some(agent)) = (endpoint, &directories.agent) else {
            return Ok(Self::default());
        };
        let runtime = CriClient::new(endpoint.trim_start_matches("unix://"));
        let listed = runtime
            .list_pod_sandbox(v1::ListPodSandboxRequest { filter: None })
            .await;
        let listed = listed.with_context(|| format!("--container-runtime-endpoint {endpoint}"))?;
        let folders = entries(&agent.join("pods")).into_iter();
        let uids = folders
            .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
            .collect();
        Ok(Self {
            runtime: Some(runtime),
            sandboxes: own(&listed.items, &uids),
        })
    }

    pub(super) fn list(&self) -> Vec<String> {
        let line = |id: &String| format!("sandbox     {}", id.chars().take(12).collect::<String>());
        self.sandboxes.iter().map(line).collect()
    }

    pub(super) async fn remove(&self) -> anyhow::Result<()> {
        let Some(runtime) = &self.runtime else {
            return Ok(());
        };
        let removals = self.sandboxes.iter().map(|id| remove(runtime, id));
        futures::stream::iter(removals)
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await
    }
}

async fn remove(runtime: &CriClient, id: &str) -> anyhow::Result<()> {
    let pod_sandbox_id = id.to_owned();
    let stop = v1::StopPodSandboxRequest {
        pod_sandbox_id: pod_sandbox_id.clone(),
    };
    runtime.stop_pod_sandbox(stop).await?;
    runtime
        .remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id })
        .await?;
    Ok(())
}

/// Ids of the sandboxes of these pods.
fn own(sandboxes: &[v1::PodSandbox], uids: &BTreeSet<String>) -> Vec<String> {
    let is_own = |sandbox: &&v1::PodSandbox| {
        sandbox
            .labels
            .get(UID_LABEL)
            .is_some_and(|uid| uids.contains(uid))
    };
    sandboxes
        .iter()
        .filter(is_own)
        .map(|sandbox| sandbox.id.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uninstall_takes_its_own_pods_out_of_a_shared_runtime() {
        let sandbox = |id: &str, uid: &str| v1::PodSandbox {
            id: id.to_owned(),
            labels: [(UID_LABEL.to_owned(), uid.to_owned())].into(),
            ..v1::PodSandbox::default()
        };
        let strange = v1::PodSandbox {
            id: "no-label".to_owned(),
            ..v1::PodSandbox::default()
        };
        let all = [sandbox("a", "ours"), sandbox("b", "another's"), strange];
        assert_eq!(own(&all, &BTreeSet::from(["ours".to_owned()])), ["a"]);
    }
}
