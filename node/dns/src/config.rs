//! Configuration of the DNS server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use node_sys::resolv_conf::ResolvConf;

/// Addresses of the DNS server and its domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsConfig {
    /// `cluster.local`.
    pub cluster_domain: String,
    /// The address of the `kube-dns` service; the server makes it an address of this node.
    pub cluster_dns: Ipv4Addr,
    /// 53, except in tests.
    pub port: u16,
    /// Servers that resolve other names, in order; with none such queries are refused.
    pub upstream: Vec<SocketAddr>,
    /// The file that names them, followed while the server runs; `None` if they are fixed.
    pub resolv_conf: Option<PathBuf>,
    /// File in which the zone is saved for the next start; `None` saves nothing.
    pub saved_zone: Option<PathBuf>,
}

impl DnsConfig {
    /// The listening address.
    pub fn address(&self) -> SocketAddr {
        (self.cluster_dns, self.port).into()
    }
}

/// The name servers of a `resolv.conf`; `own` is left out, as a query to this server itself would never end.
pub fn name_servers(resolv_conf: &str, own: Ipv4Addr) -> Vec<SocketAddr> {
    let servers = ResolvConf::parse(resolv_conf).servers.into_iter();
    let addresses = servers.filter_map(|server| server.parse().ok());
    let others = addresses.filter(|address: &std::net::IpAddr| *address != own);
    others
        // As glibc's resolver (`MAXNS`): servers beyond the third are never used on the host either.
        .take(MAX_UPSTREAM)
        .map(|address| SocketAddr::new(address, 53))
        .collect()
}

/// Name servers that resolvers read.
const MAX_UPSTREAM: usize = 3;
