//! Comparison of a service with an address, and the repair of a difference; pure.

use super::super::addresses::{FAMILY, FAMILY_LABEL, MANAGED_BY_LABEL, MANAGER};
use super::super::needs_address;
use super::super::range::Range;
use crate::engine::metadata;
use jiff::{SignedDuration, Timestamp};
use machinery_schema::{Ref, Tree};
use std::net::Ipv4Addr;

/// Age below which an address without a service is no leak: another server may be about to write the service.
const GRACE: SignedDuration = SignedDuration::from_secs(60);

/// A difference between a service and an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    /// Reason and message of the event, where upstream records one.
    pub(super) event: Option<(&'static str, String)>,
    pub(super) repair: Repair,
}

/// The repair of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repair {
    /// Only its maker can.
    Nothing,
    /// Make the address for the service.
    Make,
    /// Delete the address, make it for the service.
    Remake,
    /// Delete the address.
    Remove,
}

impl Finding {
    fn event(reason: &'static str, note: String, repair: Repair) -> Option<Self> {
        Some(Self {
            event: Some((reason, note)),
            repair,
        })
    }
}

/// The addresses that a service has.
pub(super) fn addresses_of(service: &Tree) -> Vec<String> {
    if !needs_address(service.root()) {
        return Vec::new();
    }
    let listed = service
        .get("spec")
        .into_iter()
        .flat_map(|spec| spec.list("clusterIPs"));
    listed
        .filter_map(Ref::as_str)
        .filter(|address| !address.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Namespace and name of the service an address is of, where it is a service's.
pub(super) fn service_of(address: &Tree) -> Option<(&str, &str)> {
    let parent = |field| address.str_at(&["spec", "parentRef", field]);
    let is_service = parent("group").is_empty() && parent("resource") == "services";
    is_service.then(|| (parent("namespace"), parent("name")))
}

/// Compares one address of a service. `held` is the object of that address; `other` is the service that the object
/// belongs to, if it is not this one.
pub(super) fn of_service(
    service: &Tree,
    address: &str,
    ranges: &[Range],
    held: Option<&Tree>,
    other: Option<&Tree>,
) -> Option<Finding> {
    let Ok(ip) = address.parse::<Ipv4Addr>() else {
        let note = format!("Cluster IP {address} is not a valid IP; please recreate Service");
        return Finding::event("ClusterIPNotValid", note, Repair::Nothing);
    };
    if !ranges.iter().any(|range| range.contains(ip)) {
        let note = format!(
            "Cluster IP [{FAMILY}]: {ip} is not within any configured Service CIDR; please recreate service"
        );
        return Finding::event("ClusterIPOutOfRange", note, Repair::Nothing);
    }
    let Some(held) = held else {
        let note = format!("Cluster IP [{FAMILY}]: {ip} is not allocated; repairing");
        return Finding::event("ClusterIPNotAllocated", note, Repair::Make);
    };
    let own = (metadata::namespace(service), metadata::name(service));
    if service_of(held) != Some(own) {
        if other.is_some_and(|other| addresses_of(other).iter().any(|theirs| theirs == address)) {
            let note = format!(
                "Cluster IP [{FAMILY}]:{ip} was assigned to multiple services; please recreate service"
            );
            return Finding::event("ClusterIPAlreadyAllocated", note, Repair::Nothing);
        }
        let (namespace, name) = own;
        let note = format!(
            "the ClusterIP [{FAMILY}]: {ip} for Service {namespace}/{name} has a wrong reference; repairing"
        );
        return Finding::event("ClusterIPNotAllocated", note, Repair::Remake);
    }
    let labelled = is_managed(held) && label(held, FAMILY_LABEL) == FAMILY;
    (!labelled).then_some(Finding {
        event: None,
        repair: Repair::Remake,
    })
}

/// Compares an address that was allocated for a service. `service` is the one that it belongs to.
pub(super) fn of_address(address: &Tree, service: Option<&Tree>, now: Timestamp) -> Option<Finding> {
    if !is_managed(address) {
        return None;
    }
    let ip = metadata::name(address);
    let Some((namespace, name)) = service_of(address) else {
        let note = format!(
            "IPAddress {ip} appears to have been modified, not referencing a Service {}: cleaning up",
            shown_parent(address)
        );
        return Finding::event("IPAddressNotAllocated", note, Repair::Remove);
    };
    let Some(service) = service else {
        let born = metadata::time(address, "creationTimestamp").unwrap_or(Timestamp::UNIX_EPOCH);
        if now.duration_since(born) <= GRACE {
            return None;
        }
        let note =
            format!("IPAddress: {ip} for Service {namespace}/{name} appears to have leaked: cleaning up");
        return Finding::event("IPAddressNotAllocated", note, Repair::Remove);
    };
    if addresses_of(service).iter().any(|own| own == ip) {
        return None;
    }
    let note = format!("IPAddress: {ip} for Service {namespace}/{name} has a wrong reference; cleaning up");
    Finding::event("IPAddressWrongReference", note, Repair::Remove)
}

fn is_managed(address: &Tree) -> bool {
    label(address, MANAGED_BY_LABEL) == MANAGER
}

fn label<'a>(object: &'a Tree, key: &str) -> &'a str {
    object.str_at(&["metadata", "labels", key])
}

/// A parent as Go prints it.
fn shown_parent(address: &Tree) -> String {
    let part = |field| address.str_at(&["spec", "parentRef", field]);
    format!(
        "&ParentReference{{Group:{},Resource:{},Namespace:{},Name:{},}}",
        part("group"),
        part("resource"),
        part("namespace"),
        part("name")
    )
}
