//! Fields of a node that controllers read.

use crate::views::Condition;
use k8s_openapi::api::core::v1::Taint;
use machinery_client::Projection;
use machinery_meta::ObjectHeader;
use serde::Deserialize;

/// Annotation with the seconds that a kubelet may use a cached object.
pub(crate) const TTL: &str = "node.alpha.kubernetes.io/ttl";

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
    /// `lastHeartbeatTime` of `Ready`.
    pub heartbeat: String,
    /// The label `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
    /// The annotation `node.alpha.kubernetes.io/ttl`, where it is a number.
    pub ttl_seconds: Option<i64>,
}

impl Projection for NodeView {
    fn project(header: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let node: Node<Condition> = serde_json::from_slice(json)?;
        let heartbeats: Status<Heartbeat> = serde_json::from_slice::<Node<Heartbeat>>(json)?.status;
        let heartbeat = heartbeats.conditions.into_iter().find(|own| own.kind == "Ready");
        Ok(Self {
            heartbeat: heartbeat.and_then(|own| own.at).unwrap_or_default(),
            zone: header.label("topology.kubernetes.io/zone").map(str::to_owned),
            ttl_seconds: node.metadata.annotations.ttl.and_then(|own| own.parse().ok()),
            pod_cidrs: node.spec.pod_cidrs,
            unschedulable: node.spec.unschedulable,
            taints: node.spec.taints,
            conditions: node.status.conditions,
        })
    }
}

#[derive(Deserialize)]
struct Node<C> {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default = "Status::none")]
    status: Status<C>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    annotations: Annotations,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "node.alpha.kubernetes.io/ttl")]
    ttl: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Heartbeat {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, rename = "lastHeartbeatTime")]
    at: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Spec {
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Vec<String>,
    unschedulable: bool,
    taints: Vec<Taint>,
}

#[derive(Deserialize)]
struct Status<C> {
    #[serde(default = "Vec::new")]
    conditions: Vec<C>,
}

impl<C> Status<C> {
    fn none() -> Self {
        Self {
            conditions: Vec::new(),
        }
    }
}
