//! The node beside the server: Ready, and with the first workload's image.

use super::server::ReadyServer;
use super::{Look, read, say, wait};
use crate::image;
use crate::server::paths::Paths;
use anyhow::bail;
use machinery_runtime::Runtime;
use serde_json::Value;
use std::path::Path;

/// Taints that go by themselves once a node is Ready.
const PASSING_TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
/// Taint of a cordoned node.
const CORDON: &str = "node.kubernetes.io/unschedulable";

/// A node that is Ready.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReadyNode {
    name: String,
    is_cordoned: bool,
    /// Keys of taints that keep pods away.
    taints: Vec<String>,
}

impl ReadyNode {
    fn of(node: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        let keeps_away = taints.filter(|taint| taint["effect"] != "PreferNoSchedule");
        let keys = keeps_away.map(|taint| text(&taint["key"]));
        Self {
            name: text(&node["metadata"]["name"]),
            is_cordoned: node["spec"]["unschedulable"] == true,
            taints: keys
                .filter(|key| key != CORDON && !PASSING_TAINTS.contains(&key.as_str()))
                .collect(),
        }
    }

    fn is_open(&self) -> bool {
        !self.is_cordoned && self.taints.is_empty()
    }

    /// Refuses a node on which no pod would start, instead of waiting for its pods.
    pub(super) fn refuse_closed(&self, kubectl: &str) -> anyhow::Result<()> {
        let name = &self.name;
        if self.is_cordoned {
            bail!(
                "node {name} is cordoned, and no pod starts on it: `{kubectl} uncordon {name}` ends that; then run this again, or \
                 with --no-workload"
            );
        }
        if !self.taints.is_empty() {
            bail!(
                "node {name} has taints that the first workload does not tolerate ({}): `{kubectl} describe node {name}` shows them; \
                 --no-workload starts the cluster alone",
                self.taints.join(", ")
            );
        }
        Ok(())
    }
}

/// Waits until this machine's node is Ready. Where it takes no pods, another one that does stands for it.
pub(super) async fn wait_until_ready(server: &ReadyServer, data_dir: &Path) -> anyhow::Result<ReadyNode> {
    let client = &server.client;
    let log = Paths::new(data_dir).in_agent("agent.log");
    let what = format!("the node to be Ready (its log is {})", log.display());
    let look = || async {
        let nodes = read(client, "/api/v1/nodes").await?;
        ready(&nodes, &server.node).map_err(Look::NotYet)
    };
    let node = wait(client.runtime(), &what, look).await?;
    say(&format!("    {} is Ready", node.name))?;
    Ok(node)
}

/// The node `own` or, where that takes no pods, another one that is Ready; or the reason why `own` is not.
fn ready(nodes: &Value, own: &str) -> Result<ReadyNode, String> {
    let nodes = nodes["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_own = |node: &&Value| node["metadata"]["name"] == own;
    let registered = nodes.iter().find(is_own);
    let registered = registered.ok_or_else(|| format!("no node {own:?} is registered"))?;
    if let Some(problem) = not_ready(registered) {
        return Err(problem);
    }
    let others = nodes
        .iter()
        .filter(|node| !is_own(node) && not_ready(node).is_none());
    let own = ReadyNode::of(registered);
    if own.is_open() {
        return Ok(own);
    }
    let open = others.map(ReadyNode::of).find(ReadyNode::is_open);
    Ok(open.unwrap_or(own))
}

/// The reason why a node is not Ready.
fn not_ready(node: &Value) -> Option<String> {
    let conditions = node["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    match conditions.find(|condition| condition["type"] == "Ready") {
        Some(condition) if condition["status"] == "True" => None,
        Some(condition) => Some(condition["message"].as_str().unwrap_or("NotReady").to_owned()),
        None => Some("the node has not reported yet".to_owned()),
    }
}

/// Imports the first workload's image where the agent's import has been removed.
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
        assert_eq!(
            ready(&json!({"items": []}), "n").unwrap_err(),
            "no node \"n\" is registered"
        );
        let other = node(json!([{"type": "Ready", "status": "True"}]));
        assert_eq!(ready(&other, "own").unwrap_err(), "no node \"own\" is registered");
        assert_eq!(
            ready(&node(json!([])), "n").unwrap_err(),
            "the node has not reported yet"
        );
        let waiting = json!([{"type": "Ready", "status": "False", "message": "no network"}]);
        assert_eq!(ready(&node(waiting), "n").unwrap_err(), "no network");
        let found = ready(&node(json!([{"type": "Ready", "status": "True"}])), "n").unwrap();
        assert_eq!(found.name, "n");
        found.refuse_closed("kubectl").unwrap();
    }

    #[test]
    fn up_refuses_a_node_that_takes_no_pods() {
        let node = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
        let cordoned = json!({"unschedulable": true, "taints": [taint(CORDON, "NoSchedule")]});
        let full = json!({"taints": [taint("node.kubernetes.io/disk-pressure", "NoSchedule")]});
        for (spec, words) in [
            (
                cordoned.clone(),
                "node n is cordoned, and no pod starts on it: `kubectl uncordon n`",
            ),
            (full, "(node.kubernetes.io/disk-pressure)"),
        ] {
            let found = ready(&json!({"items": [node("n", spec)]}), "n").unwrap();
            let refused = found.refuse_closed("kubectl").unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
        let open =
            json!({"taints": [taint("soft", "PreferNoSchedule"), taint(PASSING_TAINTS[0], "NoSchedule")]});
        let both = json!({"items": [node("closed", cordoned), node("open", open)]});
        assert_eq!(ready(&both, "closed").unwrap().name, "open");
    }
}
