//! Read models of services and endpoint slices for the proxy.

use ipnet::Ipv4Net;
use machinery_client::{Index, IndexName, Projection};
use machinery_meta::ObjectHeader;
use serde::Deserialize;
use std::net::Ipv4Addr;

/// Slices by the service they belong to (`namespace/name`).
pub const BY_SERVICE: IndexName = IndexName("service");
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const HEADLESS: &str = "service.kubernetes.io/headless";
const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";

/// A transport protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
pub enum Protocol {
    #[default]
    #[serde(rename = "TCP")]
    Tcp,
    #[serde(rename = "UDP")]
    Udp,
    #[serde(rename = "SCTP")]
    Sctp,
}

impl Protocol {
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// Its number in the header of a packet.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    /// The name that nft writes.
    pub fn lower(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

/// Traffic policy: the endpoints that traffic of a kind may reach.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum Policy {
    #[default]
    Cluster,
    Local,
}

/// One port of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServicePort {
    pub name: Box<str>,
    pub protocol: Protocol,
    pub port: u16,
    pub node_port: u16,
}

/// A service that has a cluster address, or `None` where the proxy has nothing to do for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    pub cluster_ip: Option<Ipv4Addr>,
    pub external_ips: Vec<Ipv4Addr>,
    /// Of load balancers whose traffic comes here as it is.
    pub balancer_ips: Vec<Ipv4Addr>,
    /// Sources that may use those; empty for all.
    pub source_ranges: Vec<Ipv4Net>,
    pub ports: Vec<ServicePort>,
    /// Seconds that a client stays with its endpoint.
    pub affinity_seconds: Option<u32>,
    pub internal: Policy,
    pub external: Policy,
    /// Port at which load balancers check for endpoints on this node.
    pub health_check_port: Option<u16>,
}

impl Service {
    /// Every address that it has.
    pub fn addresses(&self, cluster_ip: Ipv4Addr) -> impl Iterator<Item = Ipv4Addr> {
        let others = self.external_ips.iter().chain(&self.balancer_ips).copied();
        std::iter::once(cluster_ip).chain(others)
    }
}

/// Upstream's default: three hours.
const AFFINITY_SECONDS: u32 = 10_800;

impl Projection for Service {
    fn project(header: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let full: wire::Service = serde_json::from_slice(json)?;
        let cluster_ip = full.spec.cluster_ip.parse().ok();
        if header.label(PROXY_NAME).is_some() || &*full.spec.type_ == "ExternalName" || cluster_ip.is_none() {
            return Ok(Self::default());
        }
        let ingress = full
            .status
            .load_balancer
            .ingress
            .iter()
            .filter(|one| &*one.ip_mode != "Proxy");
        let spec = full.spec;
        let local = spec.external_traffic_policy == Policy::Local;
        Ok(Self {
            cluster_ip,
            external_ips: addresses(spec.external_ips.iter()),
            balancer_ips: addresses(ingress.map(|one| &one.ip)),
            source_ranges: source_ranges(&spec.load_balancer_source_ranges),
            ports: spec.ports,
            affinity_seconds: (&*spec.session_affinity == "ClientIP").then(|| {
                let client = spec.session_affinity_config.client_ip;
                client.timeout_seconds.unwrap_or(AFFINITY_SECONDS)
            }),
            internal: spec.internal_traffic_policy,
            external: spec.external_traffic_policy,
            health_check_port: Some(spec.health_check_node_port).filter(|port| *port != 0 && local),
        })
    }
}

/// Ranges of the other family say nothing about this one, and a range of everything is as good as none, as upstream
/// has it.
fn source_ranges(texts: &[Box<str>]) -> Vec<Ipv4Net> {
    let ranges: Vec<Ipv4Net> = texts.iter().filter_map(|text| text.trim().parse().ok()).collect();
    if ranges.iter().any(|range| range.prefix_len() == 0) {
        return Vec::new();
    }
    ranges
}

fn addresses<'a>(texts: impl Iterator<Item = &'a Box<str>>) -> Vec<Ipv4Addr> {
    let mut addresses: Vec<Ipv4Addr> = texts.filter_map(|text| text.parse().ok()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// One endpoint of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub address: Ipv4Addr,
    pub node: Option<Box<str>>,
    pub ready: bool,
    pub serving: bool,
    pub terminating: bool,
}

/// One port of a slice; its number applies to every endpoint in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SlicePort {
    pub name: Box<str>,
    pub protocol: Protocol,
    pub port: Option<u16>,
}

/// An IPv4 endpoint slice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slice {
    /// `namespace/name` of the service; empty where the slice is not the proxy's business.
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
        let full: wire::Slice = serde_json::from_slice(json)?;
        let Some(service) = header.label(SERVICE_NAME) else {
            return Ok(Self::default());
        };
        if &*full.address_type != "IPv4" || header.label(HEADLESS).is_some() {
            return Ok(Self::default());
        }
        let endpoints = full
            .endpoints
            .into_iter()
            .flatten()
            .filter_map(wire::Endpoint::read)
            .collect();
        let mut ports = full.ports.unwrap_or_default();
        ports.shrink_to_fit();
        let service = format!("{}/{service}", header.key.namespace).into();
        Ok(Self {
            service,
            endpoints,
            ports,
        })
    }
}

/// The API's form.
mod wire {
    use super::{Policy, ServicePort, SlicePort};
    use serde::Deserialize;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    pub(super) struct Service {
        pub(super) spec: Spec,
        pub(super) status: Status,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    pub(super) struct Spec {
        #[serde(rename = "type")]
        pub(super) type_: Box<str>,
        #[serde(rename = "clusterIP")]
        pub(super) cluster_ip: Box<str>,
        #[serde(rename = "externalIPs")]
        pub(super) external_ips: Vec<Box<str>>,
        pub(super) ports: Vec<ServicePort>,
        pub(super) session_affinity: Box<str>,
        pub(super) session_affinity_config: AffinityConfig,
        pub(super) load_balancer_source_ranges: Vec<Box<str>>,
        pub(super) health_check_node_port: u16,
        pub(super) internal_traffic_policy: Policy,
        pub(super) external_traffic_policy: Policy,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    pub(super) struct AffinityConfig {
        #[serde(rename = "clientIP")]
        pub(super) client_ip: ClientIp,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    pub(super) struct ClientIp {
        pub(super) timeout_seconds: Option<u32>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    pub(super) struct Status {
        pub(super) load_balancer: LoadBalancer,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    pub(super) struct LoadBalancer {
        pub(super) ingress: Vec<Ingress>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    pub(super) struct Ingress {
        pub(super) ip: Box<str>,
        pub(super) ip_mode: Box<str>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    pub(super) struct Slice {
        pub(super) address_type: Box<str>,
        /// `null` where there are none.
        pub(super) endpoints: Option<Vec<Endpoint>>,
        pub(super) ports: Option<Vec<SlicePort>>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    pub(super) struct Endpoint {
        addresses: Vec<Box<str>>,
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

    impl Endpoint {
        /// Consumers use the first address only; absent readiness counts as ready.
        pub(super) fn read(self) -> Option<super::Endpoint> {
            let ready = self.conditions.ready.unwrap_or(true);
            Some(super::Endpoint {
                address: self.addresses.first()?.parse().ok()?,
                node: self.node_name,
                ready,
                serving: self.conditions.serving.unwrap_or(ready),
                terminating: self.conditions.terminating.unwrap_or(false),
            })
        }
    }
}
