//! Fields of a Deployment that controllers read.

use crate::views::replica_set::{is_zero, is_zero_generation};
use crate::views::template::SharedTemplate;
use crate::views::{Condition, Selector};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use machinery_client::{Index, ProjectAfter, Projection};
use machinery_meta::{ObjectHeader, TextMap};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;

/// The projection of a Deployment.
#[derive(Debug, Clone)]
pub struct DeploymentView {
    /// `spec.replicas`.
    pub replicas: i32,
    /// `spec.minReadySeconds`.
    pub min_ready_seconds: i32,
    /// `spec.revisionHistoryLimit`.
    pub revision_history_limit: Option<i32>,
    /// `spec.progressDeadlineSeconds`; `None` where it is the largest number, which means never.
    pub progress_deadline_seconds: Option<i32>,
    /// `spec.paused`.
    pub paused: bool,
    /// `spec.selector`.
    pub selector: Selector,
    /// True if the selector selects everything, which is refused.
    pub selects_everything: bool,
    /// `spec.template`.
    pub template: Arc<SharedTemplate>,
    /// `None` for `Recreate`.
    pub rolling: Option<Rolling>,
    /// `metadata.annotations`.
    pub annotations: TextMap,
    /// `status`.
    pub status: DeploymentStatus,
}

/// The bounds of a rolling update, resolved against `replicas`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rolling {
    /// Pods that may exist beyond `replicas`.
    pub max_surge: i32,
    /// Pods of `replicas` that may be unavailable.
    pub max_unavailable: i32,
}

/// `status` of a Deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentStatus {
    /// The generation this speaks of.
    #[serde(skip_serializing_if = "is_zero_generation")]
    pub observed_generation: i64,
    /// Pods of all sets.
    #[serde(skip_serializing_if = "is_zero")]
    pub replicas: i32,
    /// Pods of the newest set.
    #[serde(skip_serializing_if = "is_zero")]
    pub updated_replicas: i32,
    /// Ready ones.
    #[serde(skip_serializing_if = "is_zero")]
    pub ready_replicas: i32,
    /// Available ones.
    #[serde(skip_serializing_if = "is_zero")]
    pub available_replicas: i32,
    /// Missing ones.
    #[serde(skip_serializing_if = "is_zero")]
    pub unavailable_replicas: i32,
    /// Pods being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating_replicas: Option<i32>,
    /// Number of times the name of a new set was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// `Available`, `Progressing`, `ReplicaFailure`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl Projection for DeploymentView {
    const INDEXES: &'static [Index<Self>] = &[Index::NAMESPACE];
    const KEEP_BYTES: bool = true;

    const PROJECT_AFTER: Option<ProjectAfter<Self>> =
        Some(|former, _, json| Self::after(Some(&former.template), json));

    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        Self::after(None, json)
    }
}

impl DeploymentView {
    fn after(former: Option<&Arc<SharedTemplate>>, json: &[u8]) -> Result<Self, serde_json::Error> {
        let deployment: Deployment<'_> = machinery_client::json::from_slice(json)?;
        let spec = deployment.spec;
        let replicas = spec.replicas.unwrap_or(1);
        Ok(Self {
            replicas,
            min_ready_seconds: spec.min_ready_seconds,
            revision_history_limit: spec.revision_history_limit,
            progress_deadline_seconds: spec
                .progress_deadline_seconds
                .filter(|seconds| *seconds != i32::MAX),
            paused: spec.paused,
            selects_everything: spec.selector.is_everything(),
            selector: spec.selector,
            template: SharedTemplate::read(spec.template, former)?,
            rolling: spec.strategy.resolve(replicas),
            annotations: deployment.metadata.annotations,
            status: deployment.status,
        })
    }
}

#[derive(Deserialize)]
struct Deployment<'a> {
    #[serde(default)]
    metadata: Meta,
    #[serde(borrow)]
    spec: Spec<'a>,
    #[serde(default)]
    status: DeploymentStatus,
}

#[derive(Deserialize, Default)]
struct Meta {
    #[serde(default)]
    annotations: TextMap,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    replicas: Option<i32>,
    #[serde(default)]
    min_ready_seconds: i32,
    revision_history_limit: Option<i32>,
    progress_deadline_seconds: Option<i32>,
    #[serde(default)]
    paused: bool,
    selector: Selector,
    #[serde(borrow)]
    template: &'a RawValue,
    #[serde(default)]
    strategy: Strategy,
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
    max_surge: Option<IntOrString>,
    max_unavailable: Option<IntOrString>,
}

impl Strategy {
    /// Surge rounds up, unavailable down; when both come to nothing, one may be unavailable.
    fn resolve(self, replicas: i32) -> Option<Rolling> {
        if self.kind == "Recreate" {
            return None;
        }
        let bounds = self.rolling_update.unwrap_or_default();
        let max_surge = resolve(bounds.max_surge.as_ref(), replicas, true);
        let max_unavailable = resolve(bounds.max_unavailable.as_ref(), replicas, false);
        let max_unavailable = if max_surge == 0 && max_unavailable == 0 {
            1
        } else {
            max_unavailable
        };
        Some(Rolling {
            max_surge,
            max_unavailable: max_unavailable.min(replicas),
        })
    }
}

/// A number, or a percentage of `total`.
pub fn resolve(value: Option<&IntOrString>, total: i32, round_up: bool) -> i32 {
    match value {
        None => 0,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(text)) => {
            let percent: i64 = text
                .strip_suffix('%')
                .and_then(|text| text.parse().ok())
                .unwrap_or(0);
            let product = i64::from(total).saturating_mul(percent);
            let whole = if round_up {
                product.saturating_add(99).div_euclid(100)
            } else {
                product.div_euclid(100)
            };
            i32::try_from(whole).unwrap_or(i32::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_beyond_64_bits_are_as_many_as_there_can_be() {
        let of = |text: &str| resolve(Some(&IntOrString::String(text.into())), 3, true);
        assert_eq!(of("9223372036854775807%"), i32::MAX);
        assert_eq!((of("34%"), of("0%")), (2, 0));
    }
}
