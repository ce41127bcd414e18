//! Projections of claims, slices and rules, as far as taints are concerned.

use jiff::Timestamp;
use machinery_client::{Index, IndexName, Projection};
use machinery_meta::ObjectHeader;
use serde::Deserialize;

/// The effect that ends pods.
pub(crate) const NO_EXECUTE: &str = "NoExecute";
/// The effect of a rule that only says what it would do.
pub(crate) const NONE: &str = "None";
/// The condition of a rule.
pub(crate) const EVICTION_IN_PROGRESS: &str = "EvictionInProgress";

/// A device by driver, pool and name.
pub(crate) type DeviceId<'a> = [&'a str; 3];

/// Devices of a claim, and the pods that it is reserved for.
#[derive(Debug)]
pub(crate) struct AllocationView {
    pub(crate) devices: Vec<AllocatedDevice>,
    /// Uids.
    pub(crate) reserved_for: Vec<Box<str>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct AllocatedDevice {
    driver: Box<str>,
    pool: Box<str>,
    device: Box<str>,
    pub(crate) tolerations: Vec<DeviceToleration>,
}

impl AllocatedDevice {
    pub(crate) fn id(&self) -> DeviceId<'_> {
        [&self.driver, &self.pool, &self.device]
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeviceToleration {
    key: Box<str>,
    operator: Box<str>,
    value: Box<str>,
    effect: Box<str>,
    pub(crate) toleration_seconds: Option<i64>,
}

impl DeviceToleration {
    /// Reports whether it is about a `NoExecute` taint: one without an effect says nothing about the end of pods.
    pub(crate) fn tolerates(&self, taint: &DeviceTaint) -> bool {
        *self.effect == *NO_EXECUTE
            && *taint.effect == *NO_EXECUTE
            && (self.key.is_empty() || self.key == taint.key)
            && match &*self.operator {
                "Exists" => true,
                "" | "Equal" => self.value == taint.value,
                _ => false,
            }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeviceTaint {
    pub(crate) key: Box<str>,
    pub(crate) value: Box<str>,
    pub(crate) effect: Box<str>,
    pub(crate) time_added: Option<Timestamp>,
}

/// Devices of a slice with their taints.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DevicesView {
    driver: Box<str>,
    pool: Pool,
    /// Empty where it is of no single node.
    node_name: Box<str>,
    devices: Vec<Device>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Pool {
    name: Box<str>,
    generation: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Device {
    name: Box<str>,
    taints: Vec<DeviceTaint>,
}

impl DevicesView {
    /// Slices by `driver/pool`.
    pub(crate) const POOL: IndexName = IndexName("device pool");

    pub(crate) fn generation(&self) -> i64 {
        self.pool.generation
    }

    /// Reports whether pods of the node may have devices of the slice, as far as its name says.
    pub(crate) fn may_concern(&self, node: &str) -> bool {
        self.node_name.is_empty() || *self.node_name == *node
    }

    pub(crate) fn has_pool_of(&self, [driver, pool, _]: DeviceId<'_>) -> bool {
        *self.driver == *driver && *self.pool.name == *pool
    }

    pub(crate) fn device_ids(&self) -> impl Iterator<Item = DeviceId<'_>> {
        let id = |own| [&*self.driver, &*self.pool.name, own];
        self.devices.iter().map(move |own| id(&*own.name))
    }

    pub(crate) fn taints_of(&self, name: &str) -> &[DeviceTaint] {
        let own = self.devices.iter().find(|own| *own.name == *name);
        own.map_or(&[], |own| &own.taints)
    }
}

/// A rule and its condition.
#[derive(Debug)]
pub(crate) struct RuleView {
    pub(crate) rule: Rule,
    pub(crate) condition: Option<RuleCondition>,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Rule {
    device_selector: Option<Selector>,
    pub(crate) taint: DeviceTaint,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Selector {
    driver: Option<Box<str>>,
    pool: Option<Box<str>>,
    device: Option<Box<str>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RuleCondition {
    #[serde(rename = "type")]
    pub(crate) kind: Box<str>,
    pub(crate) status: Box<str>,
    pub(crate) reason: Box<str>,
    pub(crate) message: Box<str>,
    pub(crate) observed_generation: i64,
    pub(crate) last_transition_time: Option<Timestamp>,
}

impl RuleView {
    /// Reports whether it is about the device.
    pub(crate) fn selects(&self, id: DeviceId<'_>) -> bool {
        let Some(own) = &self.rule.device_selector else {
            return false;
        };
        let wanted = [&own.driver, &own.pool, &own.device];
        wanted
            .into_iter()
            .zip(id)
            .all(|(wanted, own)| wanted.as_deref().is_none_or(|wanted| wanted == own))
    }
}

impl Projection for AllocationView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Claim {
            status: Status,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Status {
            allocation: Allocation,
            reserved_for: Vec<Consumer>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Allocation {
            devices: Devices,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Devices {
            results: Vec<AllocatedDevice>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Consumer {
            uid: Box<str>,
        }
        let claim: Claim = machinery_client::json::from_slice(json)?;
        Ok(Self {
            devices: claim.status.allocation.devices.results,
            reserved_for: claim.status.reserved_for.into_iter().map(|own| own.uid).collect(),
        })
    }
}

impl Projection for DevicesView {
    const INDEXES: &'static [Index<Self>] = &[Index {
        name: Self::POOL,
        values: |slice, each| each(&format!("{}/{}", slice.driver, slice.pool.name)),
    }];

    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Slice {
            spec: DevicesView,
        }
        machinery_client::json::from_slice(json).map(|slice: Slice| slice.spec)
    }
}

impl Projection for RuleView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Object {
            spec: Rule,
            status: Status,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Status {
            conditions: Vec<RuleCondition>,
        }
        let object: Object = machinery_client::json::from_slice(json)?;
        let mut conditions = object.status.conditions.into_iter();
        Ok(Self {
            rule: object.spec,
            condition: conditions.find(|own| *own.kind == *EVICTION_IN_PROGRESS),
        })
    }
}
