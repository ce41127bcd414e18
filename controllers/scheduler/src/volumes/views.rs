//! Projections that informers keep of storage for the scheduler.

use super::objects::{
    AccessModes, Attachment, Capacity, Claim, ClaimRef, Class, CsiNode, CsiSource, Driver, TopologyTerm,
    Volume,
};
use crate::object::{LabelSelector, Labels, NodeSelector, NodeSelectorTerm, OwnerReference, Requirement};
use machinery_client::{Folded, Projection};
use machinery_meta::{ObjectHeader, Quantity, Revision};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Annotations on both sides of a finished binding.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
pub(crate) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Annotation that held the class before it was a field.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// The bundled provisioner, and its note of the node that has the folder (decision 0102).
const LOCAL_PATH: &str = "knarr/local-path";
const MADE_ON: &str = "knarr/node";
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: Box<str>,
    uid: Box<str>,
    resource_version: Box<str>,
    annotations: BTreeMap<Box<str>, Box<str>>,
    labels: Labels,
    owner_references: Vec<OwnerReference>,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
}

impl Metadata {
    fn revision(&self) -> Revision {
        self.resource_version.parse().unwrap_or(Revision::ZERO)
    }

    fn says(&self, annotation: &str) -> bool {
        self.annotations.contains_key(annotation)
    }

    /// The node that has the folder of a volume of the bundled provisioner.
    fn made_on(&self) -> Option<&str> {
        let text = |name: &str| self.annotations.get(name).map(|own| &**own);
        text(MADE_ON).filter(|_| text(PROVISIONED_BY) == Some(LOCAL_PATH))
    }

    fn class(&self, field: Option<Box<str>>) -> Box<str> {
        let beta = self.annotations.get(BETA_CLASS).cloned();
        beta.or(field).unwrap_or_default()
    }
}

type Amounts = BTreeMap<Box<str>, Box<str>>;

fn storage(amounts: &Amounts) -> Option<Quantity> {
    amounts.get("storage")?.parse().ok()
}

/// A PersistentVolumeClaim.
#[derive(Debug)]
pub(crate) struct ClaimView(pub(crate) Claim);

impl Projection for ClaimView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Full {
            metadata: Metadata,
            spec: Spec,
            status: Status,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            volume_name: Box<str>,
            storage_class_name: Option<Box<str>>,
            volume_attributes_class_name: Option<Box<str>>,
            volume_mode: Option<Box<str>>,
            access_modes: AccessModes,
            resources: Resources,
            selector: Folded<Option<LabelSelector>>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Resources {
            requests: Amounts,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Status {
            phase: Box<str>,
        }
        let Full {
            mut metadata,
            spec,
            status,
        } = machinery_client::json::from_slice(json)?;
        let owners = std::mem::take(&mut metadata.owner_references);
        let owner = owners.into_iter().find(|owner| owner.controller);
        Ok(Self(Claim {
            revision: metadata.revision(),
            bound: !spec.volume_name.is_empty() && metadata.says(BIND_COMPLETED),
            class: metadata.class(spec.storage_class_name),
            volume: spec.volume_name,
            lost: &*status.phase == "Lost",
            deleting: metadata.deletion_timestamp.is_some(),
            owner: owner.map(|owner| owner.uid).unwrap_or_default(),
            selected_node: metadata.annotations.remove(SELECTED_NODE),
            uid: metadata.uid,
            request: storage(&spec.resources.requests),
            access_modes: spec.access_modes,
            is_block: spec.volume_mode.as_deref() == Some("Block"),
            attributes_class: spec.volume_attributes_class_name.unwrap_or_default(),
            selector: spec.selector,
        }))
    }
}

/// A PersistentVolume.
#[derive(Debug)]
pub(crate) struct VolumeView(pub(crate) Volume);

impl Projection for VolumeView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Full {
            metadata: Metadata,
            spec: Spec,
            status: Status,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            node_affinity: Option<Affinity>,
            capacity: Amounts,
            access_modes: AccessModes,
            volume_mode: Option<Box<str>>,
            storage_class_name: Option<Box<str>>,
            volume_attributes_class_name: Option<Box<str>>,
            claim_ref: Option<ClaimRef>,
            csi: Option<CsiSource>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Affinity {
            required: Option<NodeSelector>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Status {
            phase: Box<str>,
        }
        let Full {
            metadata,
            spec,
            status,
        } = machinery_client::json::from_slice(json)?;
        let nodes = spec.node_affinity.and_then(|affinity| affinity.required);
        Ok(Self(Volume {
            revision: metadata.revision(),
            nodes: match metadata.made_on() {
                Some(node) => Some(on_node(nodes, node)),
                None => nodes,
            },
            class: metadata.class(spec.storage_class_name),
            capacity: storage(&spec.capacity).unwrap_or_default(),
            access_modes: spec.access_modes,
            is_block: spec.volume_mode.as_deref() == Some("Block"),
            attributes_class: spec.volume_attributes_class_name.unwrap_or_default(),
            available: &*status.phase == "Available",
            deleting: metadata.deletion_timestamp.is_some(),
            bound_by_controller: metadata.says(BOUND_BY_CONTROLLER),
            claim: spec.claim_ref,
            name: metadata.name,
            labels: metadata.labels,
            csi: spec.csi,
        }))
    }
}

/// The nodes of an affinity, of them the one of this name alone. A node writes its own host name, by which volumes have their
/// affinity, and no other node's name: pods that have their data elsewhere would be drawn to it.
fn on_node(nodes: Option<NodeSelector>, name: &str) -> NodeSelector {
    let mut nodes = nodes.unwrap_or_else(|| NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm::default()],
    });
    for term in &mut nodes.node_selector_terms {
        term.match_fields.push(Requirement {
            key: "metadata.name".into(),
            operator: "In".into(),
            values: vec![name.into()],
        });
    }
    nodes
}

/// A StorageClass.
#[derive(Debug)]
pub(crate) struct ClassView(pub(crate) Class);

impl Projection for ClassView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Full {
            provisioner: Box<str>,
            volume_binding_mode: Option<Box<str>>,
            allowed_topologies: Vec<TopologyTerm>,
        }
        let full: Full = machinery_client::json::from_slice(json)?;
        let mode = full.volume_binding_mode.as_deref();
        Ok(Self(Class {
            waits: mode.map(|mode| mode == "WaitForFirstConsumer"),
            provisioner: full.provisioner,
            topologies: full.allowed_topologies,
        }))
    }
}

/// A CSINode.
#[derive(Debug)]
pub(crate) struct CsiNodeView(pub(crate) CsiNode);

impl Projection for CsiNodeView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Full {
            spec: Spec,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Spec {
            /// Null where there are none, as upstream writes it.
            drivers: Option<Vec<NodeDriver>>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct NodeDriver {
            name: Box<str>,
            allocatable: Option<Allocatable>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Allocatable {
            count: Option<i32>,
        }
        let full: Full = machinery_client::json::from_slice(json)?;
        let limit = |own: NodeDriver| (own.name, own.allocatable.and_then(|own| own.count));
        Ok(Self(CsiNode {
            drivers: full.spec.drivers.into_iter().flatten().map(limit).collect(),
        }))
    }
}

/// A CSIDriver.
#[derive(Debug)]
pub(crate) struct DriverView(pub(crate) Driver);

impl Projection for DriverView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Full {
            spec: Spec,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            storage_capacity: Option<bool>,
            prevent_pod_scheduling_if_missing: Option<bool>,
        }
        let full: Full = machinery_client::json::from_slice(json)?;
        Ok(Self(Driver {
            tracks_capacity: full.spec.storage_capacity == Some(true),
            must_be_installed: full.spec.prevent_pod_scheduling_if_missing == Some(true),
        }))
    }
}

/// A CSIStorageCapacity.
#[derive(Debug)]
pub(crate) struct CapacityView(pub(crate) Capacity);

impl Projection for CapacityView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Full {
            storage_class_name: Box<str>,
            node_topology: Option<LabelSelector>,
            capacity: Option<Box<str>>,
            maximum_volume_size: Option<Box<str>>,
        }
        let full: Full = machinery_client::json::from_slice(json)?;
        let bytes = |text: &Option<Box<str>>| {
            let amount: Option<Quantity> = text.as_ref().and_then(|text| text.parse().ok());
            amount.map(Quantity::units)
        };
        let total = bytes(&full.capacity);
        Ok(Self(Capacity {
            class: full.storage_class_name,
            limit: bytes(&full.maximum_volume_size).or(total),
            total,
            nodes: full.node_topology,
        }))
    }
}

/// A VolumeAttachment.
#[derive(Debug)]
pub(crate) struct AttachmentView(pub(crate) Attachment);

impl Projection for AttachmentView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Full {
            spec: Spec,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            attacher: Box<str>,
            node_name: Box<str>,
            source: Source,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Source {
            persistent_volume_name: Option<Box<str>>,
        }
        let Full { spec } = machinery_client::json::from_slice(json)?;
        Ok(Self(Attachment {
            driver: spec.attacher,
            node: spec.node_name,
            volume: spec.source.persistent_volume_name.unwrap_or_default(),
        }))
    }
}
