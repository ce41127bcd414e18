//! Follows this node's own object: its labels and resources for admission, and events of cordon and uncordon.

use k8s_openapi::api::core::v1::Node;
use kube::api::Api;

use crate::api::events::EventKind;
use crate::api::watch::{Change, follow};
use crate::managers::ManagerContext;

/// Follows the object of this node, for ever, once it is registered. A node counts as schedulable until it is seen cordoned.
pub(crate) async fn watch(context: ManagerContext) {
    let registered = context.registered().await;
    if !context.workers.node_is_known() {
        context.workers.update_node((*registered).clone());
    }
    let api: Api<Node> = Api::all(context.client.clone());
    let selector = format!("metadata.name={}", context.config.node_name);
    let mut closed = false;
    let tell = |change: Change<Node>| {
        let nodes = match change {
            Change::All(nodes) => nodes,
            Change::Set(node) => vec![node],
            Change::Gone(_) | Change::Failed(_) => Vec::new(),
        };
        for node in nodes {
            context.workers.update_node(node.clone());
            let now = is_closed(&node);
            if now != closed {
                closed = now;
                record_change(&context, &registered, now);
            }
        }
    };
    follow(&context.runtime, api, Some(selector), tell).await;
}

fn is_closed(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

fn record_change(context: &ManagerContext, node: &Node, closed: bool) {
    let reason = match closed {
        true => "NodeNotSchedulable",
        false => "NodeSchedulable",
    };
    let text = format!("Node {} status is now: {reason}", context.config.node_name);
    let events = &context.workers.events;
    events.node(node, EventKind::Normal, reason, text);
}
