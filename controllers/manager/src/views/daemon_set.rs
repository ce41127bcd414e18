//! Fields of a DaemonSet that controllers read.

use crate::views::replica_set::{is_zero, is_zero_generation};
use crate::views::template::PodTemplate;
use crate::views::{Condition, Selector};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use machinery_client::{Index, Projection};
use machinery_meta::{ObjectHeader, TextMap};
use serde::{Deserialize, Serialize};

/// Upstream's default of `spec.revisionHistoryLimit`.
const HISTORY_LIMIT: i32 = 10;

/// The projection of a DaemonSet.
#[derive(Debug, Clone)]
pub struct DaemonSetView {
    /// `spec.minReadySeconds`.
    pub min_ready_seconds: i32,
    /// `spec.revisionHistoryLimit`.
    pub revision_history_limit: i32,
    /// `spec.selector`.
    pub selector: Selector,
    /// `spec.template`.
    pub template: PodTemplate,
    /// `None` for `OnDelete`.
    pub rolling: Option<DaemonRolling>,
    /// `deprecated.daemonset.template.generation`, where it is a number.
    pub template_generation: Option<i64>,
    /// `metadata.annotations`.
    pub annotations: TextMap,
    /// `status`.
    pub status: DaemonSetStatus,
}

/// The bounds of a rolling update, as they are written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonRolling {
    /// Nodes that may have an old and a new pod.
    pub max_surge: Option<IntOrString>,
    /// Nodes that may have no available pod.
    pub max_unavailable: Option<IntOrString>,
}

/// `status` of a DaemonSet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetStatus {
    /// Nodes that should have a pod and have one.
    pub current_number_scheduled: i32,
    /// Nodes that should have none and have one.
    pub number_misscheduled: i32,
    /// Nodes that should have a pod.
    pub desired_number_scheduled: i32,
    /// Of these, with a ready one.
    pub number_ready: i32,
    /// The generation this speaks of.
    #[serde(skip_serializing_if = "is_zero_generation")]
    pub observed_generation: i64,
    /// Nodes that should have a pod and have one of the present template.
    #[serde(skip_serializing_if = "is_zero")]
    pub updated_number_scheduled: i32,
    /// Nodes that should have a pod and have an available one.
    #[serde(skip_serializing_if = "is_zero")]
    pub number_available: i32,
    /// Nodes that should have a pod and have no available one.
    #[serde(skip_serializing_if = "is_zero")]
    pub number_unavailable: i32,
    /// Number of times the name of a new revision was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// Conditions, which others write.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl Projection for DaemonSetView {
    const INDEXES: &'static [Index<Self>] = &[Index::NAMESPACE];
    const KEEP_BYTES: bool = true;

    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let set: DaemonSet = machinery_client::json::from_slice(json)?;
        let (spec, annotations) = (set.spec, set.metadata.annotations);
        let strategy = spec.update_strategy;
        Ok(Self {
            min_ready_seconds: spec.min_ready_seconds,
            revision_history_limit: spec.revision_history_limit.unwrap_or(HISTORY_LIMIT),
            selector: spec.selector,
            template: spec.template,
            rolling: (strategy.kind == "RollingUpdate").then(|| strategy.rolling_update.unwrap_or_default()),
            template_generation: annotations
                .get("deprecated.daemonset.template.generation")
                .and_then(|text| text.parse().ok()),
            annotations,
            status: set.status,
        })
    }
}

#[derive(Deserialize)]
struct DaemonSet {
    #[serde(default)]
    metadata: Meta,
    spec: Spec,
    #[serde(default)]
    status: DaemonSetStatus,
}

#[derive(Deserialize, Default)]
struct Meta {
    #[serde(default)]
    annotations: TextMap,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    min_ready_seconds: i32,
    revision_history_limit: Option<i32>,
    #[serde(default)]
    selector: Selector,
    template: PodTemplate,
    #[serde(default)]
    update_strategy: Strategy,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Strategy {
    #[serde(rename = "type")]
    kind: String,
    rolling_update: Option<DaemonRolling>,
}
