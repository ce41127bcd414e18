//! Claims of devices, classes, slices and taint rules: the fields that decide where devices are allocated.

use crate::object::NodeSelector;
use jiff::Timestamp;
use machinery_cel::DeviceAttribute;
use machinery_client::Folded;
use machinery_meta::{Quantity, Revision};
use machinery_semantics::taints::{NO_EXECUTE, NO_SCHEDULE, TaintTerms, TolerationTerms};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Devices that one claim can have (upstream's `AllocationResultsMaxSize`).
pub(crate) const MAX_RESULTS: usize = 32;
/// Pods that one claim can be reserved for (upstream's `ResourceClaimReservedForMaxSize`).
pub(crate) const MAX_RESERVED_FOR: usize = 256;
/// Alternatives of one request (upstream's `FirstAvailableDeviceRequestMaxSize`).
pub(crate) const MAX_ALTERNATIVES: usize = 8;

/// One device of all.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId {
    pub driver: Arc<str>,
    pub pool: Arc<str>,
    pub device: Arc<str>,
}

impl std::fmt::Display for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

/// JSON that nothing here looks into.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Raw(Box<str>);

impl Raw {
    pub(crate) fn value(&self) -> serde_json::Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(json.get().into()))
    }
}

/// A ResourceClaim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceClaim {
    pub uid: Box<str>,
    pub revision: Revision,
    pub deleting: bool,
    /// Uid of the object that controls it; empty where none does.
    pub owner: Box<str>,
    /// It was made for extended resources of the owner, a pod.
    pub is_special: bool,
    pub spec: Folded<ClaimSpec>,
    pub status: Folded<ClaimStatus>,
}

macro_rules! fields {
    ($($(#[$meta:meta])* pub struct $name:ident { $($(#[$fm:meta])* $field:ident : $ty:ty),* $(,)? })*) => { $(
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        pub struct $name { $($(#[$fm])* pub $field: $ty),* }
    )* }
}

fields! {
    /// Devices that a claim requests.
    pub struct ClaimSpec { devices: ClaimedDevices }
    pub struct ClaimedDevices {
        requests: Vec<Request>,
        constraints: Vec<ClaimConstraint>,
        config: Vec<ClaimConfig>,
    }
    pub struct Request {
        name: Box<str>,
        exactly: Option<DeviceRequest>,
        first_available: Vec<DeviceRequest>,
    }
    /// A request, or an alternative of one, which has a name.
    pub struct DeviceRequest {
        name: Box<str>,
        device_class_name: Box<str>,
        selectors: Vec<Selector>,
        allocation_mode: Box<str>,
        count: i64,
        admin_access: Option<bool>,
        tolerations: Vec<DeviceToleration>,
        capacity: Option<CapacityRequirements>,
    }
    pub struct Selector { cel: Option<CelSelector> }
    pub struct CelSelector { expression: Box<str> }
    pub struct CapacityRequirements {
        #[serde(deserialize_with = "amounts")]
        requests: Amounts,
    }
    /// Devices of these requests, or of all, have one value of an attribute, or a different one each.
    pub struct ClaimConstraint {
        requests: Vec<Box<str>>,
        match_attribute: Option<Box<str>>,
        distinct_attribute: Option<Box<str>>,
    }
    pub struct ClaimConfig { requests: Vec<Box<str>>, opaque: Option<Raw> }
    pub struct ClaimStatus {
        allocation: Option<Allocation>,
        reserved_for: Vec<Consumer>,
        devices: Vec<DeviceStatus>,
    }
    pub struct Consumer { uid: Box<str> }
    /// Conditions of a device, as its driver or a controller reports them.
    pub struct DeviceStatus {
        driver: Box<str>,
        pool: Box<str>,
        device: Box<str>,
        conditions: Vec<DeviceCondition>,
    }
    pub struct DeviceCondition {
        #[serde(rename = "type")]
        type_: Box<str>,
        status: Box<str>,
        reason: Box<str>,
        message: Box<str>,
    }
    pub struct Allocation {
        devices: AllocatedDevices,
        node_selector: Option<NodeSelector>,
        #[serde(deserialize_with = "time")]
        allocation_timestamp: Option<Timestamp>,
    }
    pub struct AllocatedDevices { results: Vec<AllocatedDevice> }
    pub struct AllocatedDevice {
        driver: Box<str>,
        pool: Box<str>,
        device: Box<str>,
        admin_access: bool,
        /// The device is shared.
        #[serde(rename = "shareID")]
        share_id: Option<Box<str>>,
        #[serde(deserialize_with = "amounts")]
        consumed_capacity: Amounts,
        /// Conditions that must be true before a pod with the device is bound.
        binding_conditions: Vec<Box<str>>,
        /// Conditions of which none may be true.
        binding_failure_conditions: Vec<Box<str>>,
    }
    /// A DeviceClass.
    pub struct DeviceClass { metadata: ClassMetadata, spec: ClassSpec }
    pub struct ClassMetadata {
        #[serde(deserialize_with = "time")]
        creation_timestamp: Option<Timestamp>,
    }
    pub struct ClassSpec {
        selectors: Vec<Selector>,
        config: Vec<ClaimConfig>,
        extended_resource_name: Option<Box<str>>,
    }
    pub struct CounterSet {
        name: Box<str>,
        #[serde(deserialize_with = "counters")]
        counters: Amounts,
    }
    pub struct CounterConsumption {
        counter_set: Box<str>,
        #[serde(deserialize_with = "counters")]
        counters: Amounts,
    }
    pub struct DeviceTaint { key: Box<str>, value: Box<str>, effect: Box<str> }
    pub struct Capacity {
        #[serde(deserialize_with = "amount")]
        value: Quantity,
        request_policy: Option<RequestPolicy>,
    }
    /// Amounts of a capacity that can be requested.
    pub struct RequestPolicy {
        #[serde(deserialize_with = "some_amount")]
        default: Option<Quantity>,
        #[serde(deserialize_with = "amount_list")]
        valid_values: Vec<Quantity>,
        valid_range: Option<ValidRange>,
    }
    pub struct ValidRange {
        #[serde(deserialize_with = "some_amount")]
        min: Option<Quantity>,
        #[serde(deserialize_with = "some_amount")]
        max: Option<Quantity>,
        #[serde(deserialize_with = "some_amount")]
        step: Option<Quantity>,
    }
    /// A DeviceTaintRule: a taint of the devices that it selects.
    pub struct TaintRule { spec: TaintRuleSpec }
    pub struct TaintRuleSpec { device_selector: RuleSelector, taint: DeviceTaint }
    pub struct RuleSelector {
        driver: Option<Box<str>>,
        pool: Option<Box<str>>,
        device: Option<Box<str>>,
    }
}

/// Amounts by name.
pub type Amounts = BTreeMap<Box<str>, Quantity>;

/// A toleration of device taints, which is copied into results.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceToleration {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub key: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub operator: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub value: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub effect: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// A ResourceSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    pub name: Box<str>,
    pub driver: Arc<str>,
    pub pool: Arc<str>,
    pub generation: i64,
    /// Slices of the pool.
    pub slice_count: i64,
    pub nodes: Nodes,
    /// Each device has its own nodes.
    pub per_device: bool,
    pub devices: Vec<Device>,
    pub counters: Vec<CounterSet>,
    /// Some of its devices have conditions that pods wait for.
    pub has_conditions: bool,
}

/// Nodes that reach a slice or a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Nodes {
    #[default]
    None,
    All,
    Named(Box<str>),
    Selected(NodeSelector),
}

/// A device of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    pub id: DeviceId,
    pub attributes: Vec<(Box<str>, DeviceAttribute)>,
    pub capacity: BTreeMap<Box<str>, Capacity>,
    pub consumes: Vec<CounterConsumption>,
    pub nodes: Nodes,
    pub taints: Vec<DeviceTaint>,
    pub allow_multiple: bool,
    pub binds_to_node: bool,
    /// Conditions that must be true before a pod with the device is bound.
    pub binding_conditions: Vec<Box<str>>,
    /// Conditions of which none may be true.
    pub binding_failure_conditions: Vec<Box<str>>,
}

impl ClaimStatus {
    pub(crate) fn is_reserved_for(&self, pod: &str) -> bool {
        self.reserved_for.iter().any(|own| *own.uid == *pod)
    }

    pub(crate) fn can_be_reserved(&self) -> bool {
        self.reserved_for.len() < MAX_RESERVED_FOR
    }
}

impl DeviceTaint {
    /// Reports whether the taint keeps devices from requests that do not tolerate it.
    pub(crate) fn prevents(&self, tolerations: &[DeviceToleration]) -> bool {
        let taint = TaintTerms {
            key: &self.key,
            value: &self.value,
            effect: &self.effect,
        };
        let tolerates = |own: &DeviceToleration| {
            let terms = TolerationTerms {
                key: &own.key,
                operator: &own.operator,
                value: &own.value,
                effect: &own.effect,
            };
            terms.accept(taint)
        };
        [NO_EXECUTE, NO_SCHEDULE].contains(&&*self.effect) && !tolerations.iter().any(tolerates)
    }
}

impl TaintRule {
    pub(crate) fn selects(&self, id: &DeviceId) -> bool {
        let own = &self.spec.device_selector;
        let is = |wanted: &Option<Box<str>>, found: &str| wanted.as_deref().is_none_or(|own| own == found);
        is(&own.driver, &id.driver) && is(&own.pool, &id.pool) && is(&own.device, &id.device)
    }
}

impl Device {
    /// An attribute by its full name; without a domain it is of the driver's.
    pub(crate) fn attribute(&self, name: &str) -> Option<&DeviceAttribute> {
        let named = |name: &str| self.attributes.iter().find(|own| *own.0 == *name);
        let short = || {
            let (domain, name) = name.split_once('/')?;
            (*domain == *self.id.driver).then(|| named(name))?
        };
        named(name).or_else(short).map(|own| &own.1)
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Counter {
    #[serde(deserialize_with = "amount")]
    value: Quantity,
}

/// A time that cannot be read counts as none: the claim then never waits too long by it.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<Box<str>>::deserialize(deserializer)?;
    Ok(text.and_then(|text| text.parse().ok()))
}

fn parsed(text: &str) -> Quantity {
    text.parse().unwrap_or_default()
}

fn amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Quantity, D::Error> {
    Ok(parsed(&Box::<str>::deserialize(deserializer)?))
}

fn some_amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Quantity>, D::Error> {
    let text = Option::<Box<str>>::deserialize(deserializer)?;
    Ok(text.map(|text| parsed(&text)))
}

fn amount_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Quantity>, D::Error> {
    let all = Vec::<Box<str>>::deserialize(deserializer)?;
    Ok(all.iter().map(|text| parsed(text)).collect())
}

fn amounts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Amounts, D::Error> {
    let all = BTreeMap::<Box<str>, Box<str>>::deserialize(deserializer)?;
    Ok(all
        .into_iter()
        .map(|(name, text)| (name, parsed(&text)))
        .collect())
}

fn counters<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Amounts, D::Error> {
    let all = BTreeMap::<Box<str>, Counter>::deserialize(deserializer)?;
    Ok(all.into_iter().map(|(name, own)| (name, own.value)).collect())
}
