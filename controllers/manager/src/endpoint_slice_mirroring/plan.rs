//! From Endpoints to slices: one for each address family and set of ports, compared with those there are. Pure.

use super::CONTROLLER;
use super::repack::{Packed, repack};
use crate::endpoint_slice::{MANAGED_BY, SERVICE_NAME};
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, Endpoints};
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointPort as SlicePort, EndpointSlice,
};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Annotations of Endpoints that slices do not get.
const OWN_ANNOTATIONS: [&str; 2] = [
    "endpoints.kubernetes.io/last-change-trigger-time",
    "kubectl.kubernetes.io/last-applied-configuration",
];

/// The family and the ports of a slice, in order.
type SliceKey = (&'static str, Vec<(i32, String, String, String)>);

/// Content that a slice should have.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Content {
    pub(super) family: &'static str,
    pub(super) ports: Vec<SlicePort>,
    pub(super) endpoints: Vec<Endpoint>,
}

/// Slices to write; numbers are places in the list of slices there are.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) create: Vec<Content>,
    pub(super) update: Vec<(usize, Content)>,
    pub(super) delete: Vec<usize>,
    /// Endpoints that there should be, and slices.
    pub(super) desired: (usize, usize),
    /// Addresses that are none.
    pub(super) invalid: usize,
    /// Addresses for which there is no room.
    pub(super) beyond: usize,
}

/// Labels of the slices.
pub(super) fn labels(endpoints: &Endpoints) -> BTreeMap<String, String> {
    let mut labels = endpoints.metadata.labels.clone().unwrap_or_default();
    let name = endpoints.metadata.name.clone().unwrap_or_default();
    labels.insert(SERVICE_NAME.to_owned(), name);
    labels.insert(MANAGED_BY.to_owned(), CONTROLLER.to_owned());
    labels
}

/// Annotations of the slices.
pub(super) fn annotations(endpoints: &Endpoints) -> BTreeMap<String, String> {
    let mut annotations = endpoints.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|name, _| !OWN_ANNOTATIONS.contains(&name.as_str()));
    annotations
}

/// Decides, with so many endpoints of a subset at most.
pub(super) fn plan(endpoints: &Endpoints, existing: &[EndpointSlice], most: usize) -> Plan {
    let mut plan = Plan::default();
    let mut by_key: BTreeMap<SliceKey, Vec<usize>> = BTreeMap::new();
    for (at, slice) in existing.iter().enumerate() {
        let key = (
            family_of(slice),
            slice.ports.iter().flatten().map(port_key).collect(),
        );
        by_key.entry(sorted(key)).or_default().push(at);
    }
    for content in desired(endpoints, most, &mut plan) {
        plan.desired.0 += content.endpoints.len();
        plan.desired.1 += 1;
        let key = sorted((content.family, content.ports.iter().map(port_key).collect()));
        let own = by_key.remove(&key).unwrap_or_default();
        let Some((first, more)) = own.split_first() else {
            plan.create.push(content);
            continue;
        };
        plan.delete.extend(more);
        if !is_as_desired(endpoints, &existing[*first], &content) {
            plan.update.push((*first, content));
        }
    }
    plan.delete.extend(by_key.into_values().flatten());
    recycle(&mut plan, existing);
    if endpoints.metadata.deletion_timestamp.is_some() {
        plan.create.clear();
    }
    plan
}

/// A slice that would go is changed into one of its family that would be made.
fn recycle(plan: &mut Plan, existing: &[EndpointSlice]) {
    for content in std::mem::take(&mut plan.create) {
        let of_family = |at: &usize| family_of(&existing[*at]) == content.family;
        match plan.delete.iter().position(of_family) {
            Some(at) => plan.update.push((plan.delete.remove(at), content)),
            None => plan.create.push(content),
        }
    }
}

fn desired(endpoints: &Endpoints, most: usize, plan: &mut Plan) -> Vec<Content> {
    let subsets = endpoints.subsets.as_deref().unwrap_or_default();
    let (packed, truncated) = repack(subsets);
    plan.beyond += usize::from(truncated);
    let mut out = Vec::new();
    for subset in packed {
        let ports: Vec<SlicePort> = subset.ports.iter().map(|port| slice_port(port)).collect();
        for (family, endpoints) in families(&subset, most, plan) {
            out.push(Content {
                family,
                ports: ports.clone(),
                endpoints,
            });
        }
    }
    out
}

/// The first endpoints of a subset, ready ones first, by family.
fn families(subset: &Packed<'_>, most: usize, plan: &mut Plan) -> BTreeMap<&'static str, Vec<Endpoint>> {
    let mut out: BTreeMap<&'static str, Vec<Endpoint>> = BTreeMap::new();
    let mut room = most;
    let ready = subset.addresses.iter().filter(|(_, ready)| *ready);
    let in_order = ready.chain(subset.addresses.iter().filter(|(_, ready)| !ready));
    for (address, ready) in in_order {
        if room == 0 {
            plan.beyond += 1;
            continue;
        }
        match endpoint(address, *ready) {
            Some((family, endpoint)) => {
                out.entry(family).or_default().push(endpoint);
                room -= 1;
            }
            None => plan.invalid += 1,
        }
    }
    out
}

fn endpoint(address: &EndpointAddress, ready: bool) -> Option<(&'static str, Endpoint)> {
    let ip = ip(&address.ip)?;
    let endpoint = Endpoint {
        addresses: vec![ip.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            ..EndpointConditions::default()
        }),
        hostname: address.hostname.clone().filter(|own| !own.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    };
    Some((if ip.is_ipv4() { "IPv4" } else { "IPv6" }, endpoint))
}

/// An address; numbers of IPv4 may have leading zeros, as they could once.
fn ip(text: &str) -> Option<IpAddr> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(ip.to_canonical());
    }
    let parts = text.split('.').map(|part| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0",
        digits => digits,
    });
    parts.collect::<Vec<_>>().join(".").parse().ok()
}

fn slice_port(port: &EndpointPort) -> SlicePort {
    SlicePort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: port.protocol.clone(),
        app_protocol: port.app_protocol.clone(),
    }
}

fn port_key(port: &SlicePort) -> (i32, String, String, String) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (
        port.port.unwrap_or_default(),
        text(&port.name),
        text(&port.protocol),
        text(&port.app_protocol),
    )
}

fn sorted(mut key: SliceKey) -> SliceKey {
    key.1.sort();
    key
}

fn family_of(slice: &EndpointSlice) -> &'static str {
    match slice.address_type.as_str() {
        "IPv6" => "IPv6",
        _ => "IPv4",
    }
}

/// Reports whether a slice has these endpoints, labels and annotations, and these Endpoints and no former ones as its owner.
fn is_as_desired(endpoints: &Endpoints, slice: &EndpointSlice, content: &Content) -> bool {
    let in_order = |endpoints: &[Endpoint]| {
        let mut texts: Vec<_> = endpoints
            .iter()
            .filter_map(|own| serde_json::to_string(own).ok())
            .collect();
        texts.sort();
        texts
    };
    let meta = &slice.metadata;
    let former = meta.owner_references.iter().flatten().any(|owner| {
        owner.kind == "Endpoints"
            && Some(&owner.name) == endpoints.metadata.name.as_ref()
            && Some(&owner.uid) != endpoints.metadata.uid.as_ref()
    });
    !former
        && in_order(slice.endpoints.as_deref().unwrap_or_default()) == in_order(&content.endpoints)
        && meta.labels.clone().unwrap_or_default() == labels(endpoints)
        && meta.annotations.clone().unwrap_or_default() == annotations(endpoints)
}
