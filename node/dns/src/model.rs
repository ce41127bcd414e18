//! Read models of services and endpoint slices for the DNS server.

use machinery_client::{Index, IndexName, Projection};
use machinery_meta::ObjectHeader;
use serde::Deserialize;
use std::net::IpAddr;

/// Slices by the service they belong to (`namespace/name`).
pub const BY_SERVICE: IndexName = IndexName("service");
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// A port that may have an SRV record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Port {
    pub name: Box<str>,
    pub protocol: Box<str>,
    pub port: u16,
}

/// A service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    pub external_name: Option<Box<str>>,
    pub headless: bool,
    pub addresses: Vec<IpAddr>,
    pub ports: Vec<Port>,
}

impl Projection for Service {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Full {
            spec: Spec,
        }
        #[derive(Deserialize, Default)]
        #[serde(default, rename_all = "camelCase")]
        struct Spec {
            #[serde(rename = "type")]
            type_: Box<str>,
            external_name: Option<Box<str>>,
            #[serde(rename = "clusterIP")]
            cluster_ip: Box<str>,
            #[serde(rename = "clusterIPs")]
            cluster_ips: Vec<Box<str>>,
            ports: Vec<Port>,
        }
        let spec = serde_json::from_slice::<Full>(json)?.spec;
        let mut texts: Vec<&str> = spec.cluster_ips.iter().map(|text| &**text).collect();
        if texts.is_empty() {
            texts.push(&spec.cluster_ip);
        }
        Ok(Self {
            headless: &*spec.cluster_ip == "None",
            addresses: texts.into_iter().filter_map(|text| text.parse().ok()).collect(),
            external_name: spec.external_name.filter(|_| &*spec.type_ == "ExternalName"),
            ports: spec.ports,
        })
    }
}

/// One endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub address: IpAddr,
    pub hostname: Option<Box<str>>,
    pub ready: bool,
}

/// A slice's port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SlicePort {
    pub name: Box<str>,
    pub protocol: Box<str>,
    pub port: Option<u16>,
}

/// Some endpoints of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slice {
    /// `namespace/name`; empty where it belongs to none.
    pub service: Box<str>,
    pub endpoints: Vec<Endpoint>,
    pub ports: Vec<SlicePort>,
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
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Full {
            /// `null` where there are none.
            endpoints: Option<Vec<WireEndpoint>>,
            ports: Option<Vec<SlicePort>>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct WireEndpoint {
            addresses: Vec<Box<str>>,
            hostname: Option<Box<str>>,
            conditions: Conditions,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Conditions {
            ready: Option<bool>,
        }
        let full: Full = serde_json::from_slice(json)?;
        let Some(service) = header.label(SERVICE_NAME) else {
            return Ok(Self::default());
        };
        let read = |one: WireEndpoint| {
            Some(Endpoint {
                address: one.addresses.first()?.parse().ok()?,
                hostname: one.hostname.filter(|name| !name.is_empty()),
                ready: one.conditions.ready.unwrap_or(true),
            })
        };
        let mut ports = full.ports.unwrap_or_default();
        ports.shrink_to_fit();
        Ok(Self {
            service: format!("{}/{service}", header.key.namespace).into(),
            endpoints: full.endpoints.into_iter().flatten().filter_map(read).collect(),
            ports,
        })
    }
}
