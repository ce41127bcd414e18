//! Scheduling fields of claims, volumes, classes, and of what CSI drivers say about nodes.

use crate::object::{LabelSelector, Labels, NodeSelector};
use machinery_client::Folded;
use machinery_meta::{ObjectKey, Quantity, Revision};
use serde::Deserialize;
use std::collections::BTreeSet;

/// A claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claim {
    pub uid: Box<str>,
    pub revision: Revision,
    /// The volume it has or requests; may be empty.
    pub volume: Box<str>,
    pub class: Box<str>,
    /// Claim and volume have found each other, and both say so.
    pub bound: bool,
    /// Its volume went away.
    pub lost: bool,
    pub deleting: bool,
    /// The uid of the pod it was made for, if it was made for one.
    pub owner: Box<str>,
    /// The node for which its volume is to be made.
    pub selected_node: Option<Box<str>>,
    /// Storage requested.
    pub request: Option<Quantity>,
    pub access_modes: AccessModes,
    pub is_block: bool,
    pub attributes_class: Box<str>,
    /// Labels that its volume must have.
    pub selector: Folded<Option<LabelSelector>>,
}

/// A set of access modes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Vec<Box<str>>")]
pub struct AccessModes(u8);

impl AccessModes {
    pub const READ_WRITE_ONCE_POD: Self = Self(1 << 3);

    pub fn contain(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }
}

impl From<Vec<Box<str>>> for AccessModes {
    fn from(names: Vec<Box<str>>) -> Self {
        let known = [
            "ReadWriteOnce",
            "ReadOnlyMany",
            "ReadWriteMany",
            "ReadWriteOncePod",
        ];
        let bit = |name: Box<str>| known.iter().position(|own| **own == *name);
        Self(names.into_iter().filter_map(bit).fold(0, |all, at| all | 1 << at))
    }
}

/// The claim that a volume names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClaimRef {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
}

impl ClaimRef {
    /// Reports whether it means this claim: by name, and by uid where it has one.
    pub fn means(&self, key: &ObjectKey, claim: &Claim) -> bool {
        *self.name == *key.name
            && *self.namespace == *key.namespace
            && (self.uid.is_empty() || self.uid == claim.uid)
    }
}

/// A volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Volume {
    pub name: Box<str>,
    pub revision: Revision,
    pub class: Box<str>,
    pub capacity: Quantity,
    pub access_modes: AccessModes,
    pub is_block: bool,
    pub attributes_class: Box<str>,
    /// Its phase is `Available`.
    pub available: bool,
    pub deleting: bool,
    pub claim: Option<ClaimRef>,
    /// A controller, and no user, bound it.
    pub bound_by_controller: bool,
    pub labels: Labels,
    /// Nodes that reach it; `None` where any does.
    pub nodes: Option<NodeSelector>,
    /// Driver and handle of one of CSI.
    pub csi: Option<CsiSource>,
}

/// A volume's name with its driver.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CsiSource {
    pub driver: Box<str>,
    pub volume_handle: Box<str>,
}

/// Labels of zones and regions, the older ones first.
pub(crate) const ZONE_LABELS: [&str; 4] = [
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

impl Volume {
    /// Zones and regions that its labels name, several separated by `__`. Labels with an empty one are not looked at.
    pub(crate) fn zones(&self) -> Vec<(&'static str, BTreeSet<Box<str>>)> {
        let of_label = |label: &'static str| {
            let text = self.labels.get(label)?;
            let zones = text.split("__").map(|zone| Box::from(zone.trim()));
            let zones: BTreeSet<Box<str>> = zones.collect();
            (!zones.contains("")).then_some((label, zones))
        };
        ZONE_LABELS.into_iter().filter_map(of_label).collect()
    }
}

/// A storage class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Class {
    /// True if its claims wait for a pod before they are bound; `None` without `volumeBindingMode`.
    pub waits: Option<bool>,
    pub provisioner: Box<str>,
    /// Topologies in which it makes volumes: any of the terms, anywhere if there is none.
    pub topologies: Vec<TopologyTerm>,
}

/// All of the labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TopologyTerm {
    pub match_label_expressions: Vec<TopologyLabel>,
}

/// A label with one of the values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TopologyLabel {
    pub key: Box<str>,
    pub values: Vec<Box<str>>,
}

/// Provisioner of classes whose volumes are made by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

impl Class {
    pub(crate) fn provisions(&self) -> bool {
        !self.provisioner.is_empty() && &*self.provisioner != NO_PROVISIONER
    }

    /// Reports whether volumes are made for nodes with these labels.
    pub(crate) fn reaches(&self, labels: &Labels) -> bool {
        let has = |label: &TopologyLabel| {
            let value = labels.get(&label.key);
            value.is_some_and(|value| label.values.iter().any(|own| **own == *value))
        };
        let matches = |term: &TopologyTerm| {
            let labels = &term.match_label_expressions;
            !labels.is_empty() && labels.iter().all(has)
        };
        self.topologies.is_empty() || self.topologies.iter().any(matches)
    }
}

/// Drivers on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CsiNode {
    /// Each with the volumes that the node can have of it, where that is limited.
    pub drivers: Vec<(Box<str>, Option<i32>)>,
}

impl CsiNode {
    pub(crate) fn has(&self, driver: &str) -> bool {
        self.drivers.iter().any(|(name, _)| **name == *driver)
    }

    pub(crate) fn limit(&self, driver: &str) -> Option<i32> {
        let own = self.drivers.iter().find(|(name, _)| **name == *driver);
        own.and_then(|(_, limit)| *limit)
    }

    pub(crate) fn allows_more_than(&self, before: &Self) -> bool {
        let mut drivers = self.drivers.iter();
        drivers.any(|(name, limit)| limit.unwrap_or(0) > before.limit(name).unwrap_or(0))
    }
}

/// A CSIDriver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Driver {
    /// Its CSIStorageCapacity objects say where a volume can be made.
    pub tracks_capacity: bool,
    /// Pods with its volumes stay off nodes without it.
    pub must_be_installed: bool,
}

/// A CSIStorageCapacity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capacity {
    pub class: Box<str>,
    /// Bytes of the largest volume that can be made; `None` where none can.
    pub limit: Option<i64>,
    /// Bytes there are.
    pub total: Option<i64>,
    pub nodes: Option<LabelSelector>,
}

/// A VolumeAttachment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attachment {
    pub driver: Box<str>,
    pub node: Box<str>,
    pub volume: Box<str>,
}
