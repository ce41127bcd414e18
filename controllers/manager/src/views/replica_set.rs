//! Fields that controllers read of a ReplicaSet, and of a ReplicationController, which is one with another selector.

use crate::views::template::SharedTemplate;
use crate::views::{Condition, Selector, created};
use jiff::Timestamp;
use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::ReplicationController};
use machinery_client::{ApiResource, Index, IndexName, ProjectAfter, Projection};
use machinery_meta::{ObjectHeader, TextMap};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;

/// The projection of a ReplicaSet.
#[derive(Debug, Clone)]
pub struct ReplicaSetView {
    /// `spec.replicas`.
    pub replicas: i32,
    /// `spec.minReadySeconds`.
    pub min_ready_seconds: i32,
    /// `spec.selector`.
    pub selector: Selector,
    /// `spec.template`.
    pub template: Arc<SharedTemplate>,
    /// `metadata.annotations`.
    pub annotations: TextMap,
    /// Time of creation.
    pub created: Timestamp,
    /// `status`.
    pub status: ReplicaSetStatus,
}

/// `status` of a ReplicaSet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSetStatus {
    /// Active pods.
    pub replicas: i32,
    /// Of these, with all labels of the template.
    #[serde(skip_serializing_if = "is_zero")]
    pub fully_labeled_replicas: i32,
    /// Of these, ready.
    #[serde(skip_serializing_if = "is_zero")]
    pub ready_replicas: i32,
    /// Of these, available.
    #[serde(skip_serializing_if = "is_zero")]
    pub available_replicas: i32,
    /// Pods being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating_replicas: Option<i32>,
    /// The generation this speaks of.
    #[serde(skip_serializing_if = "is_zero_generation")]
    pub observed_generation: i64,
    /// `ReplicaFailure`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Reports zero, for fields that are left out then.
pub(crate) fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// Reports zero, for `observedGeneration`.
pub(crate) fn is_zero_generation(number: &i64) -> bool {
    *number == 0
}

impl ReplicaSetView {
    /// Sets without a controller, by namespace.
    pub const ORPHANS: IndexName = IndexName("orphans");
}

impl Projection for ReplicaSetView {
    const INDEXES: &'static [Index<Self>] = &[
        Index::NAMESPACE,
        Index::CONTROLLER,
        Index {
            name: Self::ORPHANS,
            values: |set, each| {
                if set.header.controller().is_none() {
                    each(set.namespace());
                }
            },
        },
    ];
    const KEEP_BYTES: bool = true;

    const PROJECT_AFTER: Option<ProjectAfter<Self>> =
        Some(|former, header, json| Self::with_selector::<Selector>(Some(&former.template), header, json));

    fn project(header: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        Self::with_selector::<Selector>(None, header, json)
    }
}

/// The projection of a ReplicationController.
#[derive(Debug, Clone)]
pub struct ReplicationControllerView(ReplicaSetView);

impl Projection for ReplicationControllerView {
    const INDEXES: &'static [Index<Self>] = &[Index::NAMESPACE, Index::CONTROLLER];
    const KEEP_BYTES: bool = true;

    const PROJECT_AFTER: Option<ProjectAfter<Self>> = Some(|former, header, json| {
        ReplicaSetView::with_selector::<Pairs>(Some(&former.0.template), header, json).map(Self)
    });

    fn project(header: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        ReplicaSetView::with_selector::<Pairs>(None, header, json).map(Self)
    }
}

/// A kind whose objects keep a number of pods of one template.
pub trait SetView: Projection {
    /// True if its status has `terminatingReplicas`.
    const REPORTS_TERMINATING: bool;

    /// The kind.
    fn resource() -> ApiResource;

    /// The fields, under the names of a ReplicaSet.
    fn view(&self) -> &ReplicaSetView;
}

impl SetView for ReplicaSetView {
    const REPORTS_TERMINATING: bool = true;

    fn resource() -> ApiResource {
        ApiResource::of::<ReplicaSet>()
    }

    fn view(&self) -> &ReplicaSetView {
        self
    }
}

impl SetView for ReplicationControllerView {
    const REPORTS_TERMINATING: bool = false;

    fn resource() -> ApiResource {
        ApiResource::of::<ReplicationController>()
    }

    fn view(&self) -> &ReplicaSetView {
        &self.0
    }
}

impl ReplicaSetView {
    fn with_selector<S>(
        former: Option<&Arc<SharedTemplate>>,
        header: &ObjectHeader,
        json: &[u8],
    ) -> Result<Self, serde_json::Error>
    where
        S: DeserializeOwned + Default + Into<Selector>,
    {
        let set: Set<'_, S> = machinery_client::json::from_slice(json)?;
        Ok(Self {
            replicas: set.spec.replicas.unwrap_or(1),
            min_ready_seconds: set.spec.min_ready_seconds,
            selector: set.spec.selector.into(),
            template: SharedTemplate::read(set.spec.template, former)?,
            annotations: set.metadata.annotations,
            created: created(header),
            status: set.status,
        })
    }
}

/// The selector of a ReplicationController: pairs alone.
#[derive(Deserialize, Default)]
#[serde(transparent)]
struct Pairs(TextMap);

impl From<Pairs> for Selector {
    fn from(pairs: Pairs) -> Self {
        Self::of_pairs(pairs.0)
    }
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "S: Deserialize<'de> + Default"))]
struct Set<'a, S> {
    #[serde(default)]
    metadata: Meta,
    #[serde(borrow)]
    spec: Spec<'a, S>,
    #[serde(default)]
    status: ReplicaSetStatus,
}

#[derive(Deserialize, Default)]
struct Meta {
    #[serde(default)]
    annotations: TextMap,
}

#[derive(Deserialize)]
#[serde(
    rename_all = "camelCase",
    bound(deserialize = "S: Deserialize<'de> + Default")
)]
struct Spec<'a, S> {
    replicas: Option<i32>,
    #[serde(default)]
    min_ready_seconds: i32,
    #[serde(default)]
    selector: S,
    #[serde(borrow)]
    template: &'a RawValue,
}
