//! Follows this node's own object: its labels and resources for admission, and events of cordon and uncordon.

use k8s_openapi::api::core::v1::Node;
use machinery_client::{ListWatch, TypedChange, follow};

use crate::api;
use crate::api::events::EventType;
use crate::managers::ManagerContext;

/// Follows the object of this node, for ever, once it is registered. A node counts as schedulable until it is seen cordoned.
pub(crate) async fn watch(context: ManagerContext) {
    let registered = context.registered().await;
    if !context.workers.node_is_known() {
        context.workers.update_node((*registered).clone());
    }
    let source = ListWatch::of::<Node>().fields(format!("metadata.name={}", context.config.node_name));
    let mut closed = false;
    let apply = |change: TypedChange<Node>| {
        let nodes = match change {
            TypedChange::All { objects, .. } => objects,
            TypedChange::Set(node) => vec![node],
            TypedChange::Unread(_) | TypedChange::Gone(_) | TypedChange::Failed(_) => Vec::new(),
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
    follow(&api::client(&context.client, &context.runtime), source, apply).await;
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
    events.node(node, EventType::Normal, reason, text);
}
