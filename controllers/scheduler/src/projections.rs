//! What informers keep of each kind for the scheduler.

use crate::object::{LabelSelector, Labels, Metadata, Node, NodeSelector, Pod};
use crate::pod::PodInfo;
use crate::preemption::Budget;
use crate::volumes::{Claim, VolumeNodes};
use machinery_client::Projection;
use machinery_meta::ObjectHeader;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A pod, ready to be placed.
#[derive(Debug)]
pub(crate) struct PodView(pub(crate) Arc<PodInfo>);

impl Projection for PodView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let pod: Pod = serde_json::from_slice(json)?;
        Ok(Self(Arc::new(PodInfo::new(pod))))
    }
}

/// A node's scheduling fields.
#[derive(Debug)]
pub(crate) struct NodeView(pub(crate) Node);

impl Projection for NodeView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json).map(Self)
    }
}

/// A service's selector; services without one select nothing.
#[derive(Debug)]
pub(crate) struct MapSelector(pub(crate) LabelSelector);

impl Projection for MapSelector {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Service {
            #[serde(default)]
            spec: Spec,
        }
        #[derive(Deserialize, Default)]
        struct Spec {
            #[serde(default)]
            selector: Option<Labels>,
        }
        let service: Service = serde_json::from_slice(json)?;
        let match_labels = service.spec.selector.unwrap_or_default();
        Ok(Self(LabelSelector {
            match_labels,
            match_expressions: Vec::new(),
        }))
    }
}

/// The selector of a ReplicaSet or StatefulSet.
#[derive(Debug)]
pub(crate) struct FullSelector(pub(crate) LabelSelector);

impl Projection for FullSelector {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Set {
            #[serde(default)]
            spec: Spec,
        }
        #[derive(Deserialize, Default)]
        struct Spec {
            #[serde(default)]
            selector: Option<LabelSelector>,
        }
        let set: Set = serde_json::from_slice(json)?;
        Ok(Self(set.spec.selector.unwrap_or_default()))
    }
}

/// A PodDisruptionBudget.
#[derive(Debug)]
pub(crate) struct BudgetView(pub(crate) Budget);

impl Projection for BudgetView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Full {
            #[serde(default)]
            spec: Spec,
            #[serde(default)]
            status: Status,
        }
        #[derive(Deserialize, Default)]
        struct Spec {
            #[serde(default)]
            selector: Option<LabelSelector>,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Status {
            disruptions_allowed: i32,
            disrupted_pods: Option<BTreeMap<Box<str>, serde::de::IgnoredAny>>,
        }
        let full: Full = serde_json::from_slice(json)?;
        Ok(Self(Budget {
            selector: full.spec.selector,
            disruptions_allowed: full.status.disruptions_allowed,
            disrupted_pods: full
                .status
                .disrupted_pods
                .unwrap_or_default()
                .into_keys()
                .collect(),
        }))
    }
}

/// A PersistentVolumeClaim.
#[derive(Debug)]
pub(crate) struct ClaimView(pub(crate) Claim);

impl Projection for ClaimView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        /// What both sides of a binding say once it is done.
        const BOUND: &str = "pv.kubernetes.io/bind-completed";
        /// Where the class was before it was a field.
        const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
        #[derive(Deserialize)]
        struct Full {
            metadata: ClaimMetadata,
            #[serde(default)]
            spec: Spec,
            #[serde(default)]
            status: Status,
        }
        #[derive(Deserialize)]
        struct ClaimMetadata {
            #[serde(default)]
            annotations: BTreeMap<Box<str>, Box<str>>,
            #[serde(flatten)]
            plain: Metadata,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            volume_name: Box<str>,
            storage_class_name: Option<Box<str>>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Status {
            phase: Box<str>,
        }
        let full: Full = serde_json::from_slice(json)?;
        let annotation = |name: &str| full.metadata.annotations.get(name);
        let owner = full
            .metadata
            .plain
            .owner_references
            .iter()
            .find(|owner| owner.controller);
        Ok(Self(Claim {
            bound: !full.spec.volume_name.is_empty() && annotation(BOUND).is_some(),
            class: annotation(CLASS)
                .cloned()
                .or(full.spec.storage_class_name)
                .unwrap_or_default(),
            volume: full.spec.volume_name,
            lost: &*full.status.phase == "Lost",
            deleting: full.metadata.plain.deletion_timestamp.is_some(),
            owner: owner.map(|owner| owner.uid.clone()).unwrap_or_default(),
        }))
    }
}

/// The nodes within reach of a PersistentVolume.
#[derive(Debug)]
pub(crate) struct VolumeView(pub(crate) VolumeNodes);

impl Projection for VolumeView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Full {
            #[serde(default)]
            spec: Spec,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            node_affinity: Option<Affinity>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Affinity {
            required: Option<NodeSelector>,
        }
        let full: Full = serde_json::from_slice(json)?;
        Ok(Self(
            full.spec.node_affinity.and_then(|affinity| affinity.required),
        ))
    }
}

/// Whether a StorageClass binds its claims only once a pod uses them.
#[derive(Debug)]
pub(crate) struct ClassView(pub(crate) bool);

impl Projection for ClassView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Class {
            #[serde(default)]
            volume_binding_mode: Box<str>,
        }
        let class: Class = serde_json::from_slice(json)?;
        Ok(Self(&*class.volume_binding_mode == "WaitForFirstConsumer"))
    }
}
