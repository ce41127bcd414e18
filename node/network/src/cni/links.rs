//! Links of pods in the kernel, as CNI's `ptp` makes them: the pod's end has an address of the node's range and sends everything,
//! also to its own range, to the gateway; every end on the node has the gateway's address, and a route to the one pod behind it.

use crate::config::POD_LINKS;
use ipnet::Ipv4Net;
use node_sys::links::{Link, LinkRoute, LinkSocket, Pair, Scope};
use node_sys::namespace::NamespaceError;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Calls that are worked on at once, each with a socket of the node's.
pub(super) const AT_ONCE: usize = 16;
/// Name of the loopback link in every network namespace.
const LOOPBACK_LINK: &str = "lo";

/// A pod's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodLink<'a> {
    /// Name of the node's end.
    pub near: &'a str,
    /// Name of the pod's end.
    pub interface: &'a str,
    /// The pod's network namespace.
    pub namespace: &'a Path,
    pub address: Ipv4Addr,
    pub gateway: Ipv4Addr,
    pub range: Ipv4Net,
    pub mtu: Option<u32>,
}

/// Hardware addresses of a link's ends: the node's, the pod's.
pub type Ends = [[u8; 6]; 2];

/// The kernel's links, as far as pods need them. All of it blocks.
pub trait PodLinks: Send + Sync + Debug {
    /// Makes a link with its addresses and routes. An error may leave a part of it, which the caller removes.
    fn add(&self, link: &PodLink<'_>) -> io::Result<Ends>;

    /// Removes the link with this name on the node, or else the pod's end. Absent ones count as removed.
    fn remove(&self, near: &str, end: Option<(&Path, &str)>) -> io::Result<()>;

    /// Removes the pod's link over which the node reaches an address, if there is one.
    fn remove_to(&self, address: Ipv4Addr) -> io::Result<()>;

    /// Returns what is missing of a link, in words.
    fn missing(&self, link: &PodLink<'_>) -> io::Result<Option<String>>;

    /// Sets the loopback link of a network namespace up and returns its addresses.
    fn set_loopback_up(&self, namespace: &Path) -> io::Result<Vec<(IpAddr, u8)>>;

    /// Addresses that a link of the node leads to.
    fn reached(&self) -> io::Result<BTreeSet<Ipv4Addr>>;
}

/// Name of the node's end of a container's link: always the same, so that it is found after a crash.
pub(super) fn near_name(container: &str, interface: &str) -> String {
    // FNV-1a, of which the name has room for 44 bits.
    let bytes = container.bytes().chain([0]).chain(interface.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{POD_LINKS}{:011x}", hash >> 20)
}

/// The kernel's links in the network namespace of the thread that opened them.
///
/// A removal is answered only after the kernel has waited for readers of the link; removals overlap on sockets of their own.
#[derive(Debug)]
pub struct KernelLinks {
    node: [Mutex<LinkSocket>; AT_ONCE],
}

impl KernelLinks {
    /// Opens the namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        let sockets: io::Result<Vec<_>> = (0..AT_ONCE).map(|_| LinkSocket::open().map(Mutex::new)).collect();
        let failed = |_| io::Error::other("opening sockets for links");
        let node: [Mutex<LinkSocket>; AT_ONCE] = sockets?.try_into().map_err(failed)?;
        Ok(Self { node })
    }

    /// A socket that no other call uses.
    fn node(&self) -> MutexGuard<'_, LinkSocket> {
        let free = self.node.iter().find_map(|socket| socket.try_lock().ok());
        // With no more callers than sockets there is a free one.
        free.unwrap_or_else(|| self.node[0].lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Addresses and routes of both ends.
    fn configure(&self, link: &PodLink<'_>) -> io::Result<Ends> {
        let mut pod = LinkSocket::open_in(link.namespace).map_err(io::Error::other)??;
        let far = present(pod.find(link.interface)?)?;
        pod.set_up(far.index, true)?;
        // Up before routes: the kernel refuses a route over a link that is down.
        pod.add_address(far.index, (link.address, link.range.prefix_len()))?;
        for route in routes_of_pod(link) {
            pod.add_route(far.index, &route)?;
        }
        let mut node = self.node();
        let near = present(node.find(link.near)?)?;
        refuse_advertisements(link.near);
        // A /32 on every link: with the range's length each of them would bring a route to the whole range.
        node.add_address(near.index, (link.gateway, 32))?;
        node.add_route(near.index, &route_to_pod(link.address))?;
        Ok([near.hardware, far.hardware])
    }
}

/// Returns the link; one that has been removed meanwhile is an error.
fn present(link: Option<Link>) -> io::Result<Link> {
    link.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the link has gone"))
}

fn routes_of_pod(link: &PodLink<'_>) -> [LinkRoute; 3] {
    let source = Some(link.address);
    let via = Some(link.gateway);
    [
        LinkRoute {
            to: (link.gateway, 32),
            via: None,
            source,
            scope: Scope::Link,
        },
        LinkRoute {
            to: (link.range.network(), link.range.prefix_len()),
            via,
            source,
            scope: Scope::Everywhere,
        },
        LinkRoute {
            to: (Ipv4Addr::UNSPECIFIED, 0),
            via,
            source: None,
            scope: Scope::Everywhere,
        },
    ]
}

fn route_to_pod(address: Ipv4Addr) -> LinkRoute {
    LinkRoute {
        to: (address, 32),
        via: None,
        source: None,
        scope: Scope::Host,
    }
}

/// A pod gives the node no routes of IPv6. A node without IPv6 has no such setting.
fn refuse_advertisements(near: &str) {
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{near}/accept_ra"), "0");
}

/// A namespace that is gone, or whose file no longer leads to one, has no links.
fn is_gone(error: &NamespaceError) -> bool {
    match error {
        NamespaceError::Enter { source, .. } => {
            matches!(
                source.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
            )
        }
        NamespaceError::Thread => false,
    }
}

impl PodLinks for KernelLinks {
    fn add(&self, link: &PodLink<'_>) -> io::Result<Ends> {
        // The pair is made with its far end in the namespace already: moved later, the pod's name (`eth0`)
        // could collide with one of the node's.
        let namespace = File::open(link.namespace)?;
        let pair = Pair {
            near: link.near,
            far: link.interface,
            namespace: namespace.as_fd(),
            mtu: link.mtu,
        };
        self.node().add_pair(&pair)?;
        self.configure(link)
    }

    fn remove(&self, near: &str, end: Option<(&Path, &str)>) -> io::Result<()> {
        // Removing one end removes the other, addresses and routes with it.
        if self.node().remove(near)? {
            return Ok(());
        }
        // Made by another plugin, under a name of its own.
        let Some((namespace, interface)) = end else {
            return Ok(());
        };
        match LinkSocket::open_in(namespace) {
            Err(error) if is_gone(&error) => Ok(()),
            opened => opened.map_err(io::Error::other)??.remove(interface).map(drop),
        }
    }

    fn remove_to(&self, address: Ipv4Addr) -> io::Result<()> {
        let mut node = self.node();
        let Some(index) = node.routed()?.get(&address).copied() else {
            return Ok(());
        };
        // A route over another link is an administrator's.
        match node.name(index)?.filter(|name| name.starts_with(POD_LINKS)) {
            Some(name) => node.remove(&name).map(drop),
            None => Ok(()),
        }
    }

    fn missing(&self, link: &PodLink<'_>) -> io::Result<Option<String>> {
        let mut pod = LinkSocket::open_in(link.namespace).map_err(io::Error::other)??;
        let far = pod.find(link.interface)?;
        let Some(far) = far.filter(|far| far.is_up) else {
            return Ok(Some(format!(
                "{} of the pod is not there, or down",
                link.interface
            )));
        };
        let wanted = (link.address.into(), link.range.prefix_len());
        if !pod.addresses(far.index)?.contains(&wanted) {
            return Ok(Some(format!(
                "{} has no address {}",
                link.interface, link.address
            )));
        }
        if !self.reached()?.contains(&link.address) {
            return Ok(Some(format!("the node has no route to {}", link.address)));
        }
        Ok(None)
    }

    fn set_loopback_up(&self, namespace: &Path) -> io::Result<Vec<(IpAddr, u8)>> {
        let mut pod = LinkSocket::open_in(namespace).map_err(io::Error::other)??;
        let link = present(pod.find(LOOPBACK_LINK)?)?;
        if !link.is_up {
            pod.set_up(link.index, true)?;
        }
        pod.addresses(link.index)
    }

    fn reached(&self) -> io::Result<BTreeSet<Ipv4Addr>> {
        Ok(self.node().routed()?.into_keys().collect())
    }
}
