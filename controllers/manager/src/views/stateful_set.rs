//! Fields of a StatefulSet that controllers read.

use crate::views::deployment::resolve;
use crate::views::replica_set::{is_zero, is_zero_generation};
use crate::views::{Condition, Selector};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use machinery_client::{Index, Projection};
use machinery_meta::ObjectHeader;
use serde::{Deserialize, Serialize};

/// The projection of a StatefulSet. Its template and claim templates are read from the object's bytes when they are
/// needed.
#[derive(Debug, Clone)]
pub struct StatefulSetView {
    /// `spec.replicas`.
    pub replicas: i32,
    /// `spec.ordinals.start`.
    pub start: i32,
    /// `spec.minReadySeconds`.
    pub min_ready_seconds: i32,
    /// `spec.revisionHistoryLimit`.
    pub revision_history_limit: i32,
    /// `spec.podManagementPolicy` is `Parallel`.
    pub parallel: bool,
    /// `spec.updateStrategy.type` is `OnDelete`.
    pub on_delete: bool,
    /// `spec.updateStrategy.rollingUpdate`.
    pub rolling: Option<Rolling>,
    /// `spec.serviceName`.
    pub service_name: Box<str>,
    /// `spec.selector`.
    pub selector: Selector,
    /// `spec.persistentVolumeClaimRetentionPolicy`.
    pub retention: Retention,
    /// `status`.
    pub status: StatefulSetStatus,
}

/// The bounds of a rolling update, resolved against `replicas`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rolling {
    /// Pods below this place keep the current revision.
    pub partition: i32,
    /// Pods that may be unavailable; at least one.
    pub max_unavailable: i32,
}

/// Retention of claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// They go with the set.
    pub delete_when_deleted: bool,
    /// They go with a pod that is one too many.
    pub delete_when_scaled: bool,
}

/// `status` of a StatefulSet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetStatus {
    /// The generation this speaks of.
    #[serde(skip_serializing_if = "is_zero_generation")]
    pub observed_generation: i64,
    /// Pods.
    pub replicas: i32,
    /// Ready ones.
    #[serde(skip_serializing_if = "is_zero")]
    pub ready_replicas: i32,
    /// Pods of the current revision.
    #[serde(skip_serializing_if = "is_zero")]
    pub current_replicas: i32,
    /// Pods of the update revision.
    #[serde(skip_serializing_if = "is_zero")]
    pub updated_replicas: i32,
    /// The revision that pods had before the update.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub current_revision: String,
    /// The revision of the present template.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub update_revision: String,
    /// Number of times the name of a new revision was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// Conditions of others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Available pods.
    pub available_replicas: i32,
}

impl Projection for StatefulSetView {
    const INDEXES: &'static [Index<Self>] = &[Index::NAMESPACE];
    const KEEP_BYTES: bool = true;

    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let set: StatefulSet = machinery_client::json::from_slice(json)?;
        let spec = set.spec;
        let replicas = spec.replicas.unwrap_or(1);
        let retention = spec.persistent_volume_claim_retention_policy;
        let rolling = |bounds: Bounds| Rolling {
            partition: bounds.partition,
            max_unavailable: match &bounds.max_unavailable {
                Some(_) => resolve(bounds.max_unavailable.as_ref(), replicas, false).max(1),
                None => 1,
            },
        };
        Ok(Self {
            replicas,
            start: spec.ordinals.start,
            min_ready_seconds: spec.min_ready_seconds,
            revision_history_limit: spec.revision_history_limit.unwrap_or(10),
            parallel: spec.pod_management_policy == "Parallel",
            on_delete: spec.update_strategy.kind == "OnDelete",
            rolling: spec.update_strategy.rolling_update.map(rolling),
            service_name: spec.service_name,
            selector: spec.selector,
            retention: Retention {
                delete_when_deleted: retention.when_deleted == "Delete",
                delete_when_scaled: retention.when_scaled == "Delete",
            },
            status: set.status,
        })
    }
}

#[derive(Deserialize)]
struct StatefulSet {
    spec: Spec,
    #[serde(default)]
    status: StatefulSetStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    replicas: Option<i32>,
    min_ready_seconds: i32,
    revision_history_limit: Option<i32>,
    pod_management_policy: String,
    service_name: Box<str>,
    selector: Selector,
    ordinals: Ordinals,
    update_strategy: Strategy,
    persistent_volume_claim_retention_policy: Policy,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Ordinals {
    start: i32,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Strategy {
    #[serde(rename = "type")]
    kind: String,
    rolling_update: Option<Bounds>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Bounds {
    partition: i32,
    max_unavailable: Option<IntOrString>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Policy {
    when_deleted: String,
    when_scaled: String,
}
