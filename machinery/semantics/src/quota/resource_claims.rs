//! ResourceClaims: their number and the devices of each class that they may take.

use super::measured::{Measured, Usage, amounts};
use super::pods::is_extended_for_quota;
use crate::ResourceList;
use k8s_openapi::api::resource::v1::{DeviceRequest, ResourceClaim};
use machinery_meta::Quantity;
use std::collections::BTreeMap;

const COUNT: &str = "count/resourceclaims.resource.k8s.io";
const PER_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
const IMPLICIT: &str = "requests.deviceclass.resource.kubernetes.io/";
const REQUESTS: &str = "requests.";
/// A claim's most devices (upstream's `AllocationResultsMaxSize`).
const MAX_DEVICES: i64 = 32;

/// The extended resources by which pods may request devices of a class, by the classes' names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceClasses(pub BTreeMap<String, String>);

impl DeviceClasses {
    fn extended_resource(&self, class: &str) -> Option<&str> {
        let name = self.0.get(class)?;
        (!name.is_empty()).then_some(name)
    }

    /// The usage of a claim, with the names that it has as extended resources.
    pub fn with_extended(&self, mut usage: ResourceList) -> ResourceList {
        let devices = usage.iter().filter(|(_, amount)| *amount > Quantity::default());
        let classes =
            devices.filter_map(|(name, amount)| Some((name.strip_suffix(PER_CLASS)?.to_owned(), amount)));
        let classes: Vec<(String, Quantity)> = classes.filter(|(class, _)| !class.is_empty()).collect();
        for (class, amount) in classes {
            if let Some(resource) = self.extended_resource(&class) {
                usage.0.insert(format!("{REQUESTS}{resource}"), amount);
            }
            usage.0.insert(format!("{IMPLICIT}{class}"), amount);
        }
        usage
    }

    fn has_class_of(&self, resource: &str) -> bool {
        self.0.values().any(|own| own == resource)
    }
}

pub(super) fn matches_resource(name: &str, classes: &DeviceClasses) -> bool {
    if name == COUNT || name.ends_with(PER_CLASS) {
        return true;
    }
    if let Some(class) = name.strip_prefix(IMPLICIT) {
        return classes.extended_resource(class).is_some();
    }
    let extended = Some(name).filter(|name| is_extended_for_quota(name));
    extended
        .and_then(|name| name.strip_prefix(REQUESTS))
        .is_some_and(|resource| classes.has_class_of(resource))
}

/// The measure of a claim.
pub fn resource_claim(claim: &ResourceClaim) -> Measured {
    let mut devices: BTreeMap<String, i64> = BTreeMap::new();
    let spec = claim.spec.as_ref().and_then(|spec| spec.devices.as_ref());
    for request in spec.into_iter().flat_map(|own| own.requests.iter().flatten()) {
        for (class, most) in most_devices(request) {
            let sum = devices.entry(class.to_owned()).or_default();
            *sum = sum.saturating_add(most);
        }
    }
    let mut usage = ResourceList(BTreeMap::from([(COUNT.to_owned(), Quantity::from_units(1))]));
    for (class, count) in devices {
        usage
            .0
            .insert(format!("{class}{PER_CLASS}"), Quantity::from_units(count));
    }
    Measured {
        usage: Usage::Named(amounts(&usage)),
        ..Measured::default()
    }
}

/// The most devices of each class that a request may take: of alternatives, the largest.
fn most_devices(request: &DeviceRequest) -> BTreeMap<&str, i64> {
    let count = |mode: Option<&str>, count: Option<i64>| match mode {
        Some("ExactCount") => count.unwrap_or(0),
        Some("All") => MAX_DEVICES,
        _ => 0,
    };
    let mut most = BTreeMap::new();
    let alternatives = request.first_available.as_deref().unwrap_or_default();
    for one in alternatives {
        let own = count(one.allocation_mode.as_deref(), one.count);
        let class = most.entry(one.device_class_name.as_str()).or_insert(0);
        *class = own.max(*class);
    }
    if let Some(one) = request.exactly.as_ref().filter(|_| alternatives.is_empty()) {
        let own = count(one.allocation_mode.as_deref(), one.count);
        most.insert(one.device_class_name.as_str(), own);
    }
    most
}
