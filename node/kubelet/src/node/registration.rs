//! Making the Node object, or taking it over.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use machinery_runtime::Runtime;

use super::facts::{self, Health, NodeFacts};
use crate::config::KubeletConfig;

/// First and longest pause between tries.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(7));

/// Tries until the node is registered, and returns the object. One that is new is not Ready yet.
pub async fn register(runtime: &Runtime, client: &Client, config: &KubeletConfig, facts: &NodeFacts) -> Node {
    let mut pause = BACKOFF.0;
    loop {
        match attempt(runtime, client, config, facts).await {
            Ok(node) => return node,
            Err(error) => tracing::info!(error = %error, "node not registered yet"),
        }
        runtime.sleep(pause).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
}

async fn attempt(
    runtime: &Runtime,
    client: &Client,
    config: &KubeletConfig,
    facts: &NodeFacts,
) -> Result<Node, kube::Error> {
    let api: Api<Node> = Api::all(client.clone());
    let wanted = facts::node(config, facts, &Health::unknown(), runtime.now());
    match api.create(&PostParams::default(), &wanted).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        other => return other,
    }
    // It is there already: our labels are set, everything else of its metadata and spec stays.
    let labels = facts::labels(config, facts);
    let patch = serde_json::json!({"metadata": {"labels": labels}});
    api.patch(
        &config.node_name,
        &PatchParams::default(),
        &Patch::Strategic(&patch),
    )
    .await
}
