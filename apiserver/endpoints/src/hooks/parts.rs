//! The control plane around the endpoints, as far as answers show it.

use crate::extensions::ExtensionGroups;
use crate::resource_usage::ResourceUsage;
use async_trait::async_trait;
use std::sync::Arc;

/// A part of the control plane, as `componentstatuses` shows it.
#[derive(Debug, Clone)]
pub struct Component {
    pub name: &'static str,
    /// The problem of an unhealthy component.
    pub health: Result<(), String>,
}

/// Parts of the control plane, other servers, and nodes.
#[async_trait]
pub trait Parts: Send + Sync {
    /// The parts of the control plane that this process runs or uses, in order of their names.
    async fn components(&self) -> Vec<Component> {
        Vec::new()
    }

    /// Group versions that other servers answer.
    fn extensions(&self) -> Arc<ExtensionGroups> {
        Arc::default()
    }

    /// The usage of nodes and pods that was measured last (`metrics.k8s.io`).
    async fn resource_usage(&self) -> Arc<ResourceUsage> {
        Arc::default()
    }
}
