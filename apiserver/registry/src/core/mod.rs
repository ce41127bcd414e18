//! The kinds of the core group that have rules of their own.

pub mod claim;
pub mod config_map;
pub mod endpoints;
pub mod event;
mod namespace;
pub mod node;
pub mod pod;
pub mod replication_controller;
pub mod secret;
pub mod service;
pub mod volume;

use crate::strategy::Strategy;
use std::sync::Arc;

/// The strategy of a kind of this group.
pub(crate) fn strategy(group: &str, plural: &str) -> Option<Arc<dyn Strategy>> {
    Some(match (group, plural) {
        ("", "configmaps") => Arc::new(config_map::ConfigMapStrategy),
        ("", "namespaces") => Arc::new(namespace::NamespaceStrategy),
        ("", "nodes") => Arc::new(node::NodeStrategy),
        ("", "pods") => Arc::new(pod::PodStrategy),
        ("", "secrets") => Arc::new(secret::SecretStrategy),
        ("", "services") => Arc::new(service::ServiceStrategy),
        ("" | "events.k8s.io", "events") => Arc::new(event::EventStrategy {
            core: group.is_empty(),
        }),
        _ => return None,
    })
}
