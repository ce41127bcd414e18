//! Fields of an EndpointSlice that proxy and DNS read.

use crate::protocol::Protocol;
use machinery_client::{Index, IndexName, Projection};
use machinery_meta::ObjectHeader;
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr};

/// Slices by the service they belong to (`namespace/name`).
pub const BY_SERVICE: IndexName = IndexName("service");
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label of slices that no proxy serves, as their service has no address.
const HEADLESS: &str = "service.kubernetes.io/headless";

/// One endpoint of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The first of its addresses; consumers use no other.
    pub address: IpAddr,
    /// Its names, where it has any.
    pub names: Option<Box<EndpointNames>>,
    /// It takes new connections.
    pub ready: bool,
    /// It answers, though it may be about to end.
    pub serving: bool,
    /// It is about to end.
    pub terminating: bool,
}

/// Names of an endpoint: apart, as an endpoint without them may be a few bytes of JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointNames {
    /// `hostname`, where it is not empty.
    pub hostname: Option<Box<str>>,
    /// `nodeName`.
    pub node: Option<Box<str>>,
}

impl Endpoint {
    /// Its name among the endpoints of the service.
    pub fn hostname(&self) -> Option<&str> {
        self.names.as_ref()?.hostname.as_deref()
    }

    /// Name of its node.
    pub fn node(&self) -> Option<&str> {
        self.names.as_ref()?.node.as_deref()
    }

    /// Its address, where that is of IPv4.
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        match self.address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        }
    }
}

/// One port of a slice; its number applies to every endpoint in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SlicePort {
    /// Name of the service's port.
    pub name: Box<str>,
    /// `protocol`.
    pub protocol: Protocol,
    /// Number at the endpoints; `None` is every number.
    pub port: Option<u16>,
}

/// Some endpoints of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slice {
    /// `namespace/name` of the service; empty where it belongs to none.
    pub service: Box<str>,
    /// The proxy serves it: it is of IPv4, and of a service that has an address.
    pub is_proxied: bool,
    /// `endpoints` that have an address.
    pub endpoints: Box<[Endpoint]>,
    /// `ports`.
    pub ports: Box<[SlicePort]>,
}

impl Projection for Slice {
    const INDEXES: &'static [Index<Self>] = &[Index {
        name: BY_SERVICE,
        values: |slice, each| {
            if !slice.service.is_empty() {
                each(&slice.service);
            }
        },
    }];

    fn project(header: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let full: Full = machinery_client::json::from_slice(json)?;
        let Some(service) = header.label(SERVICE_NAME) else {
            return Ok(Self::default());
        };
        let endpoints = full.endpoints.into_iter().flatten();
        Ok(Self {
            service: format!("{}/{service}", header.key.namespace).into(),
            is_proxied: &*full.address_type == "IPv4" && header.label(HEADLESS).is_none(),
            endpoints: endpoints.filter_map(Wire::read).collect(),
            ports: full.ports.unwrap_or_default(),
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Full {
    address_type: Box<str>,
    /// `null` where there are none.
    endpoints: Option<Vec<Wire>>,
    ports: Option<Box<[SlicePort]>>,
}

/// An endpoint in the API's form.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Wire {
    addresses: Vec<Box<str>>,
    hostname: Option<Box<str>>,
    node_name: Option<Box<str>>,
    conditions: Conditions,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Conditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

impl Wire {
    /// Absent readiness counts as ready (`discovery/v1`, `EndpointConditions`).
    fn read(self) -> Option<Endpoint> {
        let ready = self.conditions.ready.unwrap_or(true);
        let names = EndpointNames {
            hostname: self.hostname.filter(|name| !name.is_empty()),
            node: self.node_name,
        };
        let has_names = names != EndpointNames::default();
        Some(Endpoint {
            address: self.addresses.first()?.parse().ok()?,
            names: has_names.then(|| Box::new(names)),
            ready,
            serving: self.conditions.serving.unwrap_or(ready),
            terminating: self.conditions.terminating.unwrap_or(false),
        })
    }
}
