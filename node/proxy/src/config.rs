//! What the proxy is told once.

use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

/// Where this proxy runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyConfig {
    /// Decides which endpoints are local.
    pub node_name: String,
    /// The node's own address.
    pub node_ip: Option<Ipv4Addr>,
    /// Addresses of pods; traffic to services from elsewhere gets the node's address. `None`: all traffic does.
    pub cluster_cidr: Option<Ipv4Net>,
    /// Service addresses that a server on this node answers itself, such as the cluster's DNS address.
    pub local_addresses: Vec<Ipv4Addr>,
}
