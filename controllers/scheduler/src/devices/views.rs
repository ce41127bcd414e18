//! Projections that informers keep of claims of devices and of what is allocated to them.

use super::objects::{
    Capacity, ClaimSpec, ClaimStatus, CounterConsumption, CounterSet, Device, DeviceClaim, DeviceClass,
    DeviceId, DeviceTaint, Nodes, Slice, TaintRule,
};
use crate::object::{NodeSelector, OwnerReference};
use machinery_cel::DeviceAttribute;
use machinery_client::{Folded, Projection};
use machinery_meta::{ObjectHeader, Revision};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A ResourceClaim.
#[derive(Debug)]
pub(crate) struct DeviceClaimView(pub(crate) Arc<DeviceClaim>);

impl Projection for DeviceClaimView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Full {
            metadata: Metadata,
            spec: Folded<ClaimSpec>,
            status: Folded<ClaimStatus>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default, rename_all = "camelCase")]
        struct Metadata {
            uid: Box<str>,
            resource_version: Box<str>,
            owner_references: Vec<OwnerReference>,
            deletion_timestamp: Option<IgnoredAny>,
            annotations: Annotations,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Annotations {
            #[serde(rename = "resource.kubernetes.io/extended-resource-claim")]
            special: Option<Box<str>>,
        }
        let Full {
            metadata,
            spec,
            status,
        } = machinery_client::json::from_slice(json)?;
        let owner = metadata.owner_references.into_iter().find(|own| own.controller);
        Ok(Self(Arc::new(DeviceClaim {
            uid: metadata.uid,
            revision: metadata.resource_version.parse().unwrap_or(Revision::ZERO),
            deleting: metadata.deletion_timestamp.is_some(),
            owner: owner.map(|own| own.uid).unwrap_or_default(),
            is_special: metadata.annotations.special.as_deref() == Some("true"),
            spec,
            status,
        })))
    }
}

/// A DeviceClass.
#[derive(Debug)]
pub(crate) struct DeviceClassView(pub(crate) Arc<DeviceClass>);

impl Projection for DeviceClassView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        machinery_client::json::from_slice(json).map(|class| Self(Arc::new(class)))
    }
}

/// A DeviceTaintRule.
#[derive(Debug)]
pub(crate) struct TaintRuleView(pub(crate) TaintRule);

impl Projection for TaintRuleView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        machinery_client::json::from_slice(json).map(Self)
    }
}

/// A ResourceSlice.
#[derive(Debug)]
pub(crate) struct SliceView(pub(crate) Arc<Slice>);

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct SliceSpec {
    driver: Box<str>,
    pool: Pool,
    node_name: Box<str>,
    node_selector: Option<NodeSelector>,
    all_nodes: bool,
    per_device_node_selection: bool,
    devices: Vec<FullDevice>,
    shared_counters: Vec<CounterSet>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Pool {
    name: Box<str>,
    generation: i64,
    resource_slice_count: i64,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct FullDevice {
    name: Box<str>,
    attributes: BTreeMap<Box<str>, Attribute>,
    capacity: BTreeMap<Box<str>, Capacity>,
    consumes_counters: Vec<CounterConsumption>,
    node_name: Box<str>,
    node_selector: Option<NodeSelector>,
    all_nodes: bool,
    taints: Vec<DeviceTaint>,
    binds_to_node: bool,
    binding_conditions: Vec<Box<str>>,
    binding_failure_conditions: Vec<Box<str>>,
    allow_multiple_allocations: bool,
}

/// One of them is set.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Attribute {
    int: Option<i64>,
    bool: Option<bool>,
    string: Option<Box<str>>,
    version: Option<Box<str>>,
}

impl Projection for SliceView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Full {
            metadata: Metadata,
            spec: SliceSpec,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Metadata {
            name: Box<str>,
        }
        let Full { metadata, spec } = machinery_client::json::from_slice(json)?;
        let (driver, pool): (Arc<str>, Arc<str>) = (spec.driver.into(), spec.pool.name.into());
        let has_conditions = spec.devices.iter().any(|own| !own.binding_conditions.is_empty());
        let device = |own: FullDevice| own.into_device(&driver, &pool);
        Ok(Self(Arc::new(Slice {
            name: metadata.name,
            generation: spec.pool.generation,
            slice_count: spec.pool.resource_slice_count,
            nodes: nodes(spec.node_name, spec.all_nodes, spec.node_selector),
            per_device: spec.per_device_node_selection,
            devices: spec.devices.into_iter().map(device).collect(),
            counters: spec.shared_counters,
            has_conditions,
            driver,
            pool,
        })))
    }
}

impl FullDevice {
    fn into_device(self, driver: &Arc<str>, pool: &Arc<str>) -> Device {
        let attributes = self.attributes.into_iter();
        Device {
            id: DeviceId {
                driver: Arc::clone(driver),
                pool: Arc::clone(pool),
                device: self.name.into(),
            },
            attributes: attributes.map(|(name, own)| (name, own.value())).collect(),
            capacity: self.capacity,
            consumes: self.consumes_counters,
            nodes: nodes(self.node_name, self.all_nodes, self.node_selector),
            taints: self.taints,
            allow_multiple: self.allow_multiple_allocations,
            binds_to_node: self.binds_to_node,
            binding_conditions: self.binding_conditions,
            binding_failure_conditions: self.binding_failure_conditions,
        }
    }
}

impl Attribute {
    fn value(self) -> DeviceAttribute {
        match self {
            Self { int: Some(own), .. } => DeviceAttribute::Int(own),
            Self { bool: Some(own), .. } => DeviceAttribute::Bool(own),
            Self {
                string: Some(own), ..
            } => DeviceAttribute::String(own),
            Self {
                version: Some(own), ..
            } => DeviceAttribute::Version(own),
            _ => DeviceAttribute::Unsupported,
        }
    }
}

fn nodes(name: Box<str>, all: bool, selector: Option<NodeSelector>) -> Nodes {
    match selector {
        _ if !name.is_empty() => Nodes::Named(name),
        _ if all => Nodes::All,
        Some(selector) => Nodes::Selected(selector),
        None => Nodes::None,
    }
}
