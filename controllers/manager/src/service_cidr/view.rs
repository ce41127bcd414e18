//! Fields of ranges and addresses that are read.

use crate::views::Condition;
use ipnet::IpNet;
use machinery_client::Projection;
use machinery_meta::ObjectHeader;
use serde::Deserialize;
use std::net::IpAddr;

/// A ServiceCIDR.
#[derive(Debug, Default)]
pub(crate) struct CidrView {
    pub(super) ranges: Vec<IpNet>,
    pub(super) conditions: Vec<Condition>,
}

impl CidrView {
    /// An address that a service may have from it: neither the network's own nor, with IPv4, the last one.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| {
            let last = address.is_ipv4() && address == range.broadcast();
            range.contains(&address) && address != range.network() && !last
        })
    }

    /// All of a range lies in one of its own.
    pub(super) fn covers(&self, other: &IpNet) -> bool {
        self.ranges.iter().any(|range| range.contains(other))
    }
}

impl Projection for CidrView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let cidr: Cidr = machinery_client::json::from_slice(json)?;
        Ok(Self {
            ranges: cidr
                .spec
                .cidrs
                .iter()
                .filter_map(|own| own.parse().ok())
                .collect(),
            conditions: cidr.status.conditions,
        })
    }
}

#[derive(Deserialize)]
struct Cidr {
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Spec {
    cidrs: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
}

/// An IPAddress.
#[derive(Debug)]
pub(crate) struct AddressView {
    /// Its address, if the server made it for a service.
    pub(super) service_address: Option<IpAddr>,
}

const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const SERVICES: &str = "ipallocator.k8s.io";

impl Projection for AddressView {
    fn project(header: &ObjectHeader, _: &[u8]) -> Result<Self, serde_json::Error> {
        let ours = header.label(MANAGED_BY) == Some(SERVICES);
        Ok(Self {
            service_address: header.key.name.parse().ok().filter(|_| ours),
        })
    }
}
