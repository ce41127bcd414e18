//! Fields of a Service that proxy and DNS read.

use crate::protocol::Protocol;
use ipnet::Ipv4Net;
use machinery_client::Projection;
use machinery_meta::ObjectHeader;
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr};

/// Label of services that another proxy serves.
const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// Upstream's default of `clientIP.timeoutSeconds`: three hours.
const AFFINITY_SECONDS: u32 = 10_800;

/// Traffic policy: the endpoints that traffic of a kind may reach.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum Policy {
    /// Endpoints of any node.
    #[default]
    Cluster,
    /// Endpoints of the node that traffic enters alone.
    Local,
}

/// One port of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServicePort {
    /// Its name; empty where the only port of a service has none.
    pub name: Box<str>,
    /// `protocol`.
    pub protocol: Protocol,
    /// Number at the addresses of the service.
    pub port: u16,
    /// Number at the addresses of nodes; 0 is none.
    pub node_port: u16,
}

/// A service. Only its names, its addresses and its ports are there where the proxy has nothing to do for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    /// `spec.externalName` of a service of type `ExternalName`.
    pub external_name: Option<Box<str>>,
    /// `spec.clusterIP` is `None`.
    pub headless: bool,
    /// `spec.clusterIPs`, of both families.
    pub addresses: Box<[IpAddr]>,
    /// `spec.ports`.
    pub ports: Box<[ServicePort]>,
    /// Address that the proxy serves; `None` for headless services, for `ExternalName` and for those of another proxy.
    pub cluster_ip: Option<Ipv4Addr>,
    /// `spec.externalIPs`.
    pub external_ips: Vec<Ipv4Addr>,
    /// Of load balancers whose traffic comes here as it is.
    pub balancer_ips: Vec<Ipv4Addr>,
    /// Sources that may use those; empty for all.
    pub source_ranges: Vec<Ipv4Net>,
    /// Seconds that a client stays with its endpoint.
    pub affinity_seconds: Option<u32>,
    /// `spec.internalTrafficPolicy`.
    pub internal: Policy,
    /// `spec.externalTrafficPolicy`.
    pub external: Policy,
    /// Port at which load balancers check for endpoints on this node.
    pub health_check_port: Option<u16>,
}

impl Service {
    /// Every address at which the proxy serves it.
    pub fn proxied_addresses(&self, cluster_ip: Ipv4Addr) -> impl Iterator<Item = Ipv4Addr> {
        let others = self.external_ips.iter().chain(&self.balancer_ips).copied();
        std::iter::once(cluster_ip).chain(others)
    }

    /// Adds the fields that the proxy alone reads.
    fn with_proxied(self, cluster_ip: Ipv4Addr, spec: &Spec, status: &Status) -> Self {
        let ingress = &status.load_balancer.ingress;
        let direct = ingress.iter().filter(|one| &*one.ip_mode != "Proxy");
        let local = spec.external_traffic_policy == Policy::Local;
        Self {
            cluster_ip: Some(cluster_ip),
            external_ips: addresses(spec.external_ips.iter()),
            balancer_ips: addresses(direct.map(|one| &one.ip)),
            source_ranges: source_ranges(&spec.load_balancer_source_ranges),
            affinity_seconds: (&*spec.session_affinity == "ClientIP").then(|| {
                let client = &spec.session_affinity_config.client_ip;
                client.timeout_seconds.unwrap_or(AFFINITY_SECONDS)
            }),
            internal: spec.internal_traffic_policy,
            external: spec.external_traffic_policy,
            health_check_port: Some(spec.health_check_node_port).filter(|port| *port != 0 && local),
            ..self
        }
    }
}

impl Projection for Service {
    fn project(header: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let Full { mut spec, status } = machinery_client::json::from_slice(json)?;
        let is_external = &*spec.type_ == "ExternalName";
        let named = Self {
            external_name: spec.external_name.take().filter(|_| is_external),
            headless: &*spec.cluster_ip == "None",
            addresses: spec.addresses(),
            ports: std::mem::take(&mut spec.ports),
            ..Self::default()
        };
        let is_proxied = !is_external && header.label(PROXY_NAME).is_none();
        Ok(match spec.cluster_ip.parse() {
            Ok(cluster_ip) if is_proxied => named.with_proxied(cluster_ip, &spec, &status),
            _ => named,
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

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Full {
    spec: Spec,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    #[serde(rename = "type")]
    type_: Box<str>,
    external_name: Option<Box<str>>,
    #[serde(rename = "clusterIP")]
    cluster_ip: Box<str>,
    #[serde(rename = "clusterIPs")]
    cluster_ips: Vec<Box<str>>,
    #[serde(rename = "externalIPs")]
    external_ips: Vec<Box<str>>,
    ports: Box<[ServicePort]>,
    session_affinity: Box<str>,
    session_affinity_config: AffinityConfig,
    load_balancer_source_ranges: Vec<Box<str>>,
    health_check_node_port: u16,
    internal_traffic_policy: Policy,
    external_traffic_policy: Policy,
}

impl Spec {
    /// Addresses of both families; `clusterIP` where the list of them is absent.
    fn addresses(&self) -> Box<[IpAddr]> {
        let first = self.cluster_ips.is_empty().then_some(&self.cluster_ip);
        let texts = first.into_iter().chain(&self.cluster_ips);
        texts.filter_map(|text| text.parse().ok()).collect()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AffinityConfig {
    #[serde(rename = "clientIP")]
    client_ip: ClientIp,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClientIp {
    timeout_seconds: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    load_balancer: LoadBalancer,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LoadBalancer {
    ingress: Vec<Ingress>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Ingress {
    ip: Box<str>,
    ip_mode: Box<str>,
}
