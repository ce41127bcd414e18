//! PersistentVolumeClaims: their number and the storage they request, in all and by class.

use super::measured::{Measured, Scopes, Usage};
use crate::ResourceList;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use machinery_meta::Quantity;
use machinery_meta::quantity::Format;
use std::collections::BTreeSet;

const COUNT: &str = "count/persistentvolumeclaims";
const CLAIMS: &str = "persistentvolumeclaims";
const STORAGE: &str = "requests.storage";
const BY_CLASS: &str = ".storageclass.storage.k8s.io/";
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) fn matches_resource(name: &str) -> bool {
    let bare = [CLAIMS, STORAGE];
    let of_class = name
        .rsplit_once(BY_CLASS)
        .is_some_and(|(_, resource)| bare.contains(&resource));
    name == COUNT || bare.contains(&name) || of_class
}

/// The measure of a claim.
pub fn volume_claim(claim: &PersistentVolumeClaim) -> Measured {
    let mut usage = vec![
        (CLAIMS.into(), Quantity::from_units(1)),
        (COUNT.into(), Quantity::from_units(1)),
    ];
    let class = class(claim);
    let storage = storage(claim);
    usage.extend(storage.map(|amount| (STORAGE.into(), amount)));
    if !class.is_empty() {
        let named = |resource: &str| format!("{class}{BY_CLASS}{resource}").into_boxed_str();
        usage.push((named(CLAIMS), Quantity::from_units(1)));
        usage.extend(storage.map(|amount| (named(STORAGE), amount)));
    }
    Measured {
        usage: Usage::Named(usage.into_boxed_slice()),
        scopes: Scopes::Claim(attribute_classes(claim)),
        ..Measured::default()
    }
}

fn class(claim: &PersistentVolumeClaim) -> &str {
    let annotations = claim.metadata.annotations.as_ref();
    let annotated = annotations.and_then(|own| own.get(CLASS_ANNOTATION));
    let named = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.storage_class_name.as_ref());
    annotated.or(named).map_or("", String::as_str)
}

/// The storage that is requested, or that a growth which failed may still take.
fn storage(claim: &PersistentVolumeClaim) -> Option<Quantity> {
    let requested = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let requested = ResourceList::from_api(requested.and_then(|own| own.requests.as_ref()));
    let requested = whole(*requested.0.get("storage")?);
    let status = claim.status.as_ref();
    let granted = ResourceList::from_api(status.and_then(|own| own.allocated_resources.as_ref()));
    let granted = granted
        .0
        .get("storage")
        .copied()
        .filter(|granted| *granted > requested);
    Some(granted.map_or(requested, whole))
}

/// Whole bytes, rounded up.
fn whole(amount: Quantity) -> Quantity {
    match (amount.is_integer(), amount.format()) {
        (true, _) => amount,
        (false, Format::BinarySi) => Quantity::from_bytes(amount.units()),
        (false, _) => Quantity::from_units(amount.units()),
    }
}

fn attribute_classes(claim: &PersistentVolumeClaim) -> Box<[Box<str>]> {
    let spec = claim.spec.as_ref();
    let status = claim.status.as_ref();
    let wanted = spec.and_then(|own| own.volume_attributes_class_name.as_deref());
    let current = status.and_then(|own| own.current_volume_attributes_class_name.as_deref());
    let changing = status.and_then(|own| own.modify_volume_status.as_ref());
    let target = changing.and_then(|own| own.target_volume_attributes_class_name.as_deref());
    let all = [wanted, current, target].into_iter().flatten();
    let names: BTreeSet<&str> = all.filter(|name| !name.is_empty()).collect();
    names.into_iter().map(Into::into).collect()
}
