//! Fields of a node that controllers read.

use crate::views::Condition;
use k8s_openapi::api::core::v1::Taint;
use machinery_client::Projection;
use machinery_meta::ObjectHeader;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

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
    /// Its volumes are attached for it: it has the annotation `volumes.kubernetes.io/controller-managed-attach-detach`.
    pub has_volumes_attached: bool,
    /// Volumes of pods that have ended stay attached: `volumes.kubernetes.io/keep-terminated-pod-volumes` is `true`.
    pub keeps_volumes_of_ended: bool,
    /// `status.volumesInUse`.
    pub volumes_in_use: Box<[Box<str>]>,
    /// `status.volumesAttached`.
    pub volumes_attached: Box<[ReportedVolume]>,
}

/// A volume of `status.volumesAttached`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportedVolume {
    /// Unique name of the volume.
    pub name: Box<str>,
    /// Path of its device, where its plugin gives one.
    pub device_path: Box<str>,
}

impl Projection for NodeView {
    fn project(header: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let node: Node<Condition> = machinery_client::json::from_slice(json)?;
        let heartbeats: Status<Heartbeat> =
            machinery_client::json::from_slice::<Node<Heartbeat>>(json)?.status;
        let annotations = node.metadata.annotations;
        let heartbeat = heartbeats.conditions.into_iter().find(|own| own.kind == "Ready");
        Ok(Self {
            heartbeat: heartbeat.and_then(|own| own.at).unwrap_or_default(),
            zone: header.label("topology.kubernetes.io/zone").map(str::to_owned),
            ttl_seconds: annotations.ttl.and_then(|own| own.parse().ok()),
            pod_cidrs: node.spec.pod_cidrs,
            unschedulable: node.spec.unschedulable,
            taints: node.spec.taints,
            conditions: node.status.conditions,
            has_volumes_attached: annotations.has_volumes_attached.is_some(),
            keeps_volumes_of_ended: annotations.keeps_volumes_of_ended.as_deref() == Some("true"),
            volumes_in_use: node.status.volumes_in_use,
            volumes_attached: node.status.volumes_attached,
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
    #[serde(rename = "volumes.kubernetes.io/controller-managed-attach-detach")]
    has_volumes_attached: Option<IgnoredAny>,
    #[serde(rename = "volumes.kubernetes.io/keep-terminated-pod-volumes")]
    keeps_volumes_of_ended: Option<String>,
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
#[serde(rename_all = "camelCase")]
struct Status<C> {
    #[serde(default = "Vec::new")]
    conditions: Vec<C>,
    #[serde(default)]
    volumes_in_use: Box<[Box<str>]>,
    #[serde(default)]
    volumes_attached: Box<[ReportedVolume]>,
}

impl<C> Status<C> {
    fn none() -> Self {
        Self {
            conditions: Vec::new(),
            volumes_in_use: Box::default(),
            volumes_attached: Box::default(),
        }
    }
}
