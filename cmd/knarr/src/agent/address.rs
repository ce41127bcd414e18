//! Addresses of the node and of its API server.

use crate::kubeconfig::KubeconfigFile;
use anyhow::Context;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;

/// The address that is given, or else the one from which this machine reaches the API server.
pub(super) fn node_ip(given: Option<IpAddr>, kubeconfig: &Path) -> anyhow::Result<IpAddr> {
    match given {
        Some(ip) => Ok(ip),
        None => address_towards(kubeconfig).context("finding this node's address; give --node-ip"),
    }
}

/// An address that no machine has (RFC 5737), to which only a default route leads.
const BEYOND: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);

/// Reports whether this machine has a route to addresses beyond its own networks.
pub(crate) fn has_default_route() -> bool {
    source_address(BEYOND).is_some()
}

/// The address from which this machine reaches the API server; if that is here, the one that reaches others.
fn address_towards(kubeconfig: &Path) -> anyhow::Result<IpAddr> {
    let server = server_address(kubeconfig)?;
    for target in server.into_iter().chain([BEYOND]) {
        if let Some(ip) = source_address(target).filter(|ip| !ip.is_loopback()) {
            return Ok(ip);
        }
    }
    // No route anywhere: any address.
    node_sys::machine::outer_addresses()
        .into_iter()
        .next()
        .context("this machine has no address but the loopback link's: give a link one, and a default route")
}

/// Address of the API server in a kubeconfig; `None` if the file has a name in its place.
pub(super) fn server_address(kubeconfig: &Path) -> anyhow::Result<Option<SocketAddr>> {
    let file = KubeconfigFile::read(kubeconfig)?;
    let host = file
        .current_server()
        .unwrap_or_default()
        .trim_start_matches("https://")
        .split('/')
        .next()
        .unwrap_or_default();
    Ok(host.parse().ok())
}

/// A datagram socket learns its own address when it is connected; nothing is sent.
fn source_address(target: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr = if target.is_ipv4() {
        ([0, 0, 0, 0], 0).into()
    } else {
        ([0_u16; 8], 0).into()
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(target).ok()?;
    Some(socket.local_addr().ok()?.ip())
}
