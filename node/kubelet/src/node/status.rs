//! The Node's status: looked at often while it is not well, seldom once it is, written when it differs.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerImage, Node, NodeStatus};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use machinery_runtime::Runtime;
use node_cri::{CriClient, v1};
use serde_json::{Map, Value, json};

use super::facts::{self, Health, NodeFacts};
use crate::api::events::{EventKind, EventRecorder};
use crate::config::KubeletConfig;

/// Once the node is ready.
const LOOK_AFTER: Duration = Duration::from_secs(10);
/// Until then, after this part of the time it has not been, within these bounds.
const LOOK_SOON: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
const LOOK_SOON_PART: u32 = 8;
/// Written at least this often, so that the heartbeat shows.
const WRITE_AFTER: Duration = Duration::from_secs(300);
/// Upstream's `nodeStatusMaxImages`.
const IMAGES_MAX: usize = 50;

/// Keeps the status true.
pub struct StatusKeeper {
    /// Clock.
    pub runtime: Runtime,
    /// The API.
    pub client: Client,
    /// The container runtime.
    pub cri: CriClient,
    /// Where events go.
    pub events: EventRecorder,
    /// The node's configuration.
    pub config: Arc<KubeletConfig>,
    /// What does not change.
    pub facts: NodeFacts,
}

impl std::fmt::Debug for StatusKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StatusKeeper").finish_non_exhaustive()
    }
}

/// How the runtime is.
pub async fn health(cri: &CriClient) -> Health {
    let answer = match cri.status(v1::StatusRequest { verbose: false }).await {
        Ok(answer) => answer,
        Err(error) => {
            let message = format!("[container runtime is down: {}]", error.message());
            return Health {
                runtime_ready: false,
                network_ready: false,
                message,
            };
        }
    };
    let conditions = answer.status.unwrap_or_default().conditions;
    let of = |kind: &str| conditions.iter().find(|condition| condition.r#type == kind);
    let is_ready = |kind: &str| of(kind).is_some_and(|condition| condition.status);
    let complaint = |kind: &str| {
        of(kind).filter(|condition| !condition.status).map(|condition| {
            format!(
                "container runtime {} not ready: {kind}=false reason:{} message:{}",
                if kind == "NetworkReady" { "network" } else { "is" },
                condition.reason,
                condition.message
            )
        })
    };
    let complaints: Vec<String> = ["RuntimeReady", "NetworkReady"]
        .into_iter()
        .filter_map(complaint)
        .collect();
    Health {
        runtime_ready: is_ready("RuntimeReady"),
        network_ready: is_ready("NetworkReady"),
        message: complaints.join(", "),
    }
}

impl StatusKeeper {
    /// Keeps it for ever, from the object as registered.
    pub async fn run(self, node: Node) {
        let mut last = node.status.clone().unwrap_or_default();
        let mut written_at = self.runtime.monotonic();
        let mut was_ready = None;
        let mut last_ready = self.runtime.monotonic();
        loop {
            let health = health(&self.cri).await;
            let ready = health.is_ready();
            let mut status = facts::status(&self.config, &self.facts, &health, self.runtime.now(), &last);
            status.images = Some(self.images().await);
            let due = self.runtime.monotonic() - written_at >= WRITE_AFTER;
            if due || facts::differs(&last, &status) {
                match self.write(&last, &status).await {
                    Ok(()) => {
                        last = status;
                        written_at = self.runtime.monotonic();
                        self.tell(&node, was_ready, ready);
                        was_ready = Some(ready);
                    }
                    Err(error) => tracing::debug!(error = %error, "node status not written"),
                }
            }
            let now = self.runtime.monotonic();
            let pause = match ready {
                true => LOOK_AFTER,
                false => ((now - last_ready) / LOOK_SOON_PART).clamp(LOOK_SOON.0, LOOK_SOON.1),
            };
            last_ready = if ready { now } else { last_ready };
            self.runtime.sleep(pause).await;
        }
    }

    fn tell(&self, node: &Node, before: Option<bool>, ready: bool) {
        if before == Some(ready) {
            return;
        }
        let (reason, word) = if ready {
            ("NodeReady", "NodeReady")
        } else {
            ("NodeNotReady", "NodeNotReady")
        };
        let text = format!("Node {} status is now: {word}", self.config.node_name);
        self.events.node(node, EventKind::Normal, reason, text);
    }

    async fn images(&self) -> Vec<ContainerImage> {
        let Ok(answer) = self.cri.list_images(v1::ListImagesRequest { filter: None }).await else {
            return Vec::new();
        };
        let mut images: Vec<ContainerImage> = answer
            .images
            .into_iter()
            .map(|image| ContainerImage {
                names: Some(image.repo_digests.into_iter().chain(image.repo_tags).collect()),
                size_bytes: i64::try_from(image.size).ok(),
            })
            .collect();
        images.sort_by_key(|image| std::cmp::Reverse(image.size_bytes));
        images.truncate(IMAGES_MAX);
        images
    }

    /// Only what differs: the conditions of others and their order stay as they are.
    async fn write(&self, old: &NodeStatus, new: &NodeStatus) -> Result<(), kube::Error> {
        let map = |status: &NodeStatus| match serde_json::to_value(status) {
            Ok(Value::Object(map)) => map,
            _ => Map::new(),
        };
        let old = map(old);
        let changed: Map<String, Value> = map(new)
            .into_iter()
            .filter(|(name, value)| old.get(name) != Some(value))
            .collect();
        let patch = json!({"status": changed});
        let api: Api<Node> = Api::all(self.client.clone());
        let name = &self.config.node_name;
        api.patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch))
            .await
            .map(drop)
    }
}
