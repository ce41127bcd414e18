//! What controllers read of a node.

use crate::views::Condition;
use k8s_openapi::api::core::v1::Taint;
use machinery_client::Projection;
use machinery_meta::ObjectHeader;
use serde::Deserialize;

/// The projection of a node.
#[derive(Debug, Clone, Default)]
pub struct NodeView {
    /// `spec.podCIDRs`.
    pub pod_cidrs: Vec<String>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// `status.conditions`.
    pub conditions: Vec<Condition>,
}

impl Projection for NodeView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let node: Node = serde_json::from_slice(json)?;
        Ok(Self {
            pod_cidrs: node.spec.pod_cidrs,
            unschedulable: node.spec.unschedulable,
            taints: node.spec.taints,
            conditions: node.status.conditions,
        })
    }
}

#[derive(Deserialize)]
struct Node {
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Spec {
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Vec<String>,
    unschedulable: bool,
    taints: Vec<Taint>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
}
