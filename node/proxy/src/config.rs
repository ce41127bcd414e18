//! Configuration of the proxy.

use crate::NodePortAddresses;
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

/// Node and addresses of this proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyConfig {
    /// Decides which endpoints are local.
    pub node_name: String,
    /// The node's own address.
    pub node_ip: Option<Ipv4Addr>,
    /// Addresses of pods; traffic to services from elsewhere gets the node's address. `None`: all traffic does.
    pub cluster_cidr: Option<Ipv4Net>,
    /// Addresses that the API server gives to services.
    pub service_cidr: Option<Ipv4Net>,
    /// Service addresses that a server on this node answers itself, such as the cluster's DNS address.
    pub local_addresses: Vec<Ipv4Addr>,
    /// Addresses of the node that serve node ports and health check ports.
    pub node_port_addresses: NodePortAddresses,
}

impl ProxyConfig {
    /// Reports whether an address belongs to the cluster itself: no service may have it as an external address.
    pub(crate) fn is_own(&self, address: Ipv4Addr) -> bool {
        let ranges = [self.cluster_cidr, self.service_cidr];
        ranges.into_iter().flatten().any(|range| range.contains(&address))
            || self.node_ip == Some(address)
            || self.local_addresses.contains(&address)
    }
}
