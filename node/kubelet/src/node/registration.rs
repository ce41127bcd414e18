//! Making the Node object, or taking it over, beside everything else: pods that are known run on while the API server
//! is away.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use machinery_runtime::{Runtime, Watched};

use super::facts::{self, Health, NodeFacts};
use crate::config::KubeletConfig;

/// First and longest pause between tries, as upstream's.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(7));

/// The Node object as registered, once it is. Clones are of the same registration.
#[derive(Debug, Clone)]
pub struct Registration {
    node: Arc<Watched<Option<Arc<Node>>>>,
}

impl Registration {
    /// Begins to register, in the background.
    pub fn begin(runtime: &Runtime, client: &Client, config: &Arc<KubeletConfig>, facts: &NodeFacts) -> Self {
        let node = Arc::new(Watched::new(None));
        let own = (runtime.clone(), client.clone(), config.clone(), facts.clone());
        let told = node.clone();
        let begin = move || {
            let ((runtime, client, config, facts), told) = (own.clone(), told.clone());
            async move {
                let node = register(&runtime, &client, &config, &facts).await;
                told.replace(Some(Arc::new(node)));
            }
        };
        runtime.keep("node registration", begin).detach();
        Self { node }
    }

    /// Waits until the node is registered, and returns the object as it was then.
    pub async fn registered(&self) -> Arc<Node> {
        let node = self.node.wait_for(Option::is_some).await;
        node.expect("it was waited for")
    }
}

/// Tries until the node is registered, and returns the object. One that is new is not Ready yet.
async fn register(runtime: &Runtime, client: &Client, config: &KubeletConfig, facts: &NodeFacts) -> Node {
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
