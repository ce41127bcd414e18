//! The node beside the server: Ready, and with the first workload's image.

use super::{Look, read, say, wait};
use crate::image;
use crate::server::paths::Paths;
use machinery_client::Client;
use machinery_runtime::Runtime;
use serde_json::Value;
use std::path::Path;

/// Waits until a node is Ready.
pub(super) async fn wait_until_ready(client: &Client, data_dir: &Path) -> anyhow::Result<()> {
    let log = Paths::new(data_dir).in_agent("agent.log");
    let what = format!("the node to be Ready (its log is {})", log.display());
    let look = || async {
        let nodes = read(client, "/api/v1/nodes").await?;
        ready(&nodes).map_err(Look::NotYet)
    };
    let node = wait(client.runtime(), &what, look).await?;
    say(&format!("    {node} is Ready"))
}

/// The first node that is Ready, or why none is.
fn ready(nodes: &Value) -> Result<String, String> {
    let mut reason = "no node is registered".to_owned();
    for node in nodes["items"].as_array().into_iter().flatten() {
        let conditions = node["status"]["conditions"].as_array();
        let ready = conditions
            .into_iter()
            .flatten()
            .find(|condition| condition["type"] == "Ready");
        match ready {
            Some(condition) if condition["status"] == "True" => {
                return Ok(node["metadata"]["name"].as_str().unwrap_or_default().to_owned());
            }
            Some(condition) => reason = condition["message"].as_str().unwrap_or("NotReady").to_owned(),
            None => reason = "the node has not reported yet".to_owned(),
        }
    }
    Err(reason)
}

/// Imports the first workload's image where somebody has removed what the agent has imported.
pub(super) async fn ensure_image(runtime: &Runtime, data_dir: &Path) -> anyhow::Result<()> {
    image::import_built(runtime, data_dir, image::Built::Hello).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn up_says_why_no_node_is_ready() {
        let node = |conditions: Value| json!({"items": [{"metadata": {"name": "n"}, "status": {"conditions": conditions}}]});
        assert_eq!(ready(&json!({"items": []})).unwrap_err(), "no node is registered");
        assert_eq!(
            ready(&node(json!([]))).unwrap_err(),
            "the node has not reported yet"
        );
        let waiting = json!([{"type": "Ready", "status": "False", "message": "no network"}]);
        assert_eq!(ready(&node(waiting)).unwrap_err(), "no network");
        assert_eq!(
            ready(&node(json!([{"type": "Ready", "status": "True"}]))).unwrap(),
            "n"
        );
    }
}
