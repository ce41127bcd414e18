//! Links of pods: pairs of virtual Ethernet devices with one end in a pod's network namespace, their addresses and routes.

use crate::namespace::{NamespaceError, in_network_namespace};
use crate::netlink::{ACK, CREATE, DUMP, EXCLUSIVE, Message, REQUEST, Socket, Writer, attribute, attributes};
use nix::sys::socket::SockProtocol;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;

/// Attributes of links (`IFLA_*`).
const LINK_ADDRESS: u16 = 1;
const LINK_NAME: u16 = 3;
const LINK_MTU: u16 = 4;
const LINK_INFO: u16 = 18;
const LINK_NAMESPACE: u16 = 28;
/// Attributes of a link's information (`IFLA_INFO_*`, `VETH_INFO_PEER`).
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const PEER: u16 = 1;
/// Attributes of addresses (`IFA_*`).
const ADDRESS_PEER: u16 = 1;
const ADDRESS_LOCAL: u16 = 2;
const ADDRESS_BROADCAST: u16 = 4;
const ADDRESS_FLAGS: u16 = 8;
/// The kernel adds no route to an address' range.
const NO_PREFIX_ROUTE: u32 = 0x200;
/// Attributes of routes (`RTA_*`).
const ROUTE_TO: u16 = 1;
const ROUTE_LINK: u16 = 4;
const ROUTE_VIA: u16 = 5;
const ROUTE_SOURCE: u16 = 7;

const UP: u32 = 1;
const IPV4: u8 = 2;
const IPV6: u8 = 10;
const MAIN_TABLE: u8 = 254;
/// Protocol id of a route that no daemon keeps (`RTPROT_BOOT`), as CNI's plugins make them.
const BOOT: u8 = 3;
const UNICAST: u8 = 1;
/// `struct ifinfomsg`, `struct ifaddrmsg`, `struct rtmsg`.
const LINK_FIXED: usize = 16;
const ADDRESS_FIXED: usize = 8;
const ROUTE_FIXED: usize = 12;
/// Bytes of a link's name (`IFNAMSIZ` without the zero).
pub const NAME_BYTES_MAX: usize = 15;

/// Reach of a route (`RT_SCOPE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Beyond a gateway.
    Everywhere,
    /// On the link.
    Link,
    /// On this machine, as CNI's plugins call what is behind a pod's link.
    Host,
}

impl Scope {
    fn number(self) -> u8 {
        match self {
            Self::Everywhere => 0,
            Self::Link => 253,
            Self::Host => 254,
        }
    }
}

/// A route over a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkRoute {
    /// First address of the range, and the length of what its addresses share.
    pub to: (Ipv4Addr, u8),
    /// Gateway.
    pub via: Option<Ipv4Addr>,
    /// Source address of what is sent over it.
    pub source: Option<Ipv4Addr>,
    /// Reach.
    pub scope: Scope,
}

/// A link of a network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Number within its namespace.
    pub index: u32,
    /// Hardware address.
    pub hardware: [u8; 6],
    /// True where it was set up.
    pub is_up: bool,
}

/// A pair of links to make.
#[derive(Debug, Clone, Copy)]
pub struct Pair<'a> {
    /// Name of the end in the namespace of the socket.
    pub near: &'a str,
    /// Name of the end in the other namespace.
    pub far: &'a str,
    /// The other namespace.
    pub namespace: BorrowedFd<'a>,
    /// Largest packet; `None` leaves it to the kernel.
    pub mtu: Option<u32>,
}

/// Links, addresses and routes of one network namespace.
#[derive(Debug)]
pub struct LinkSocket {
    socket: Socket,
}

impl LinkSocket {
    /// Those of the network namespace of this thread.
    pub fn open() -> io::Result<Self> {
        let socket = Socket::open(SockProtocol::NetlinkRoute, 0)?;
        Ok(Self { socket })
    }

    /// Those of another network namespace. Starts a thread, and blocks.
    ///
    /// # Errors
    /// The namespace cannot be entered; the inner one when there can be no socket.
    pub fn open_in(namespace: &Path) -> Result<io::Result<Self>, NamespaceError> {
        in_network_namespace(namespace, Self::open)
    }

    /// Makes a pair of links, the near end up: the far one cannot be before it has its peer.
    ///
    /// # Errors
    /// `AlreadyExists` where one of the names is in use.
    pub fn add_pair(&mut self, pair: &Pair<'_>) -> io::Result<()> {
        self.send(&pair_message(pair))
    }

    /// Returns a link by its name; `None` where there is none.
    pub fn find(&mut self, name: &str) -> io::Result<Option<Link>> {
        let mut writer = Writer::default();
        let start = link_message(&mut writer, GET_LINK, 0, name);
        writer.end(start);
        let mut found = None;
        match self
            .socket
            .request(&writer, |message| found = read_link(message.payload))
        {
            Err(error) if is_absent(&error) => Ok(None),
            done => done.map(|()| found),
        }
    }

    /// Returns the name of the link with this number; `None` where there is none.
    pub fn name(&mut self, index: u32) -> io::Result<Option<String>> {
        let mut writer = Writer::default();
        let start = writer.begin(GET_LINK, REQUEST | ACK);
        link_fixed(&mut writer, index, 0, 0);
        writer.end(start);
        let mut found = None;
        let each = |message: &Message<'_>| found = read_name(message.payload);
        match self.socket.request(&writer, each) {
            Err(error) if is_absent(&error) => Ok(None),
            done => done.map(|()| found),
        }
    }

    /// Removes a link, and so the other end of a pair. Reports whether it was there.
    pub fn remove(&mut self, name: &str) -> io::Result<bool> {
        let mut writer = Writer::default();
        let start = link_message(&mut writer, DELETE_LINK, 0, name);
        writer.end(start);
        match self.send(&writer) {
            Err(error) if is_absent(&error) => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// Sets a link up or down.
    pub fn set_up(&mut self, index: u32, up: bool) -> io::Result<()> {
        let mut writer = Writer::default();
        let start = writer.begin(NEW_LINK, REQUEST | ACK);
        link_fixed(&mut writer, index, if up { UP } else { 0 }, UP);
        writer.end(start);
        self.send(&writer)
    }

    /// Adds an address of a range to a link, with the range's broadcast address and without a route to the range.
    pub fn add_address(&mut self, index: u32, (address, length): (Ipv4Addr, u8)) -> io::Result<()> {
        let mut writer = Writer::default();
        let start = writer.begin(NEW_ADDRESS, REQUEST | ACK | CREATE | EXCLUSIVE);
        writer.raw(&[IPV4, length, 0, 0]);
        writer.raw(&index.to_ne_bytes());
        writer.attribute(ADDRESS_LOCAL, &address.octets());
        writer.attribute(ADDRESS_PEER, &address.octets());
        // RFC 3021: ranges of two addresses have no broadcast address.
        if length < 31 {
            let last = u32::from(address) | (u32::MAX >> length);
            writer.attribute(ADDRESS_BROADCAST, &last.to_be_bytes());
        }
        writer.attribute(ADDRESS_FLAGS, &NO_PREFIX_ROUTE.to_ne_bytes());
        writer.end(start);
        self.send(&writer)
    }

    /// Adds a route over a link.
    pub fn add_route(&mut self, index: u32, route: &LinkRoute) -> io::Result<()> {
        let mut writer = Writer::default();
        let start = writer.begin(NEW_ROUTE, REQUEST | ACK | CREATE | EXCLUSIVE);
        let (to, length) = route.to;
        let scope = route.scope.number();
        writer.raw(&[IPV4, length, 0, 0, MAIN_TABLE, BOOT, scope, UNICAST, 0, 0, 0, 0]);
        writer.attribute(ROUTE_TO, &to.octets());
        writer.attribute(ROUTE_LINK, &index.to_ne_bytes());
        for (kind, address) in [(ROUTE_VIA, route.via), (ROUTE_SOURCE, route.source)] {
            if let Some(address) = address {
                writer.attribute(kind, &address.octets());
            }
        }
        writer.end(start);
        self.send(&writer)
    }

    /// Addresses of a link, each with the length of its range.
    pub fn addresses(&mut self, index: u32) -> io::Result<Vec<(IpAddr, u8)>> {
        let mut writer = Writer::default();
        let start = writer.begin(GET_ADDRESS, REQUEST | DUMP);
        writer.raw(&[0; ADDRESS_FIXED]);
        writer.end(start);
        let mut found = Vec::new();
        let each = |message: &Message<'_>| found.extend(read_address(message.payload, index));
        self.socket.request(&writer, each)?;
        Ok(found)
    }

    /// Routes of the main table to single addresses, by address, with the number of the link of each.
    pub fn routed(&mut self) -> io::Result<BTreeMap<Ipv4Addr, u32>> {
        let mut writer = Writer::default();
        let start = writer.begin(GET_ROUTE, REQUEST | DUMP);
        writer.raw(&[IPV4, 0, 0, 0, MAIN_TABLE, 0, 0, 0, 0, 0, 0, 0]);
        writer.end(start);
        let mut found = BTreeMap::new();
        self.socket
            .request(&writer, |message| found.extend(read_route(message.payload)))?;
        Ok(found)
    }

    fn send(&mut self, writer: &Writer) -> io::Result<()> {
        self.socket.request(writer, |_| ())
    }
}

/// Reports whether an error says that there is no such link.
fn is_absent(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENODEV)
}

fn pair_message(pair: &Pair<'_>) -> Writer {
    let mut writer = Writer::default();
    let start = writer.begin(NEW_LINK, REQUEST | ACK | CREATE | EXCLUSIVE);
    let of_end = |writer: &mut Writer, name: &str, flags: u32| {
        link_fixed(writer, 0, flags, flags);
        writer.text(LINK_NAME, name);
        if let Some(mtu) = pair.mtu {
            writer.attribute(LINK_MTU, &mtu.to_ne_bytes());
        }
    };
    of_end(&mut writer, pair.near, UP);
    let info = writer.nest(LINK_INFO);
    writer.text(INFO_KIND, "veth");
    let data = writer.nest(INFO_DATA);
    let peer = writer.nest(PEER);
    of_end(&mut writer, pair.far, 0);
    writer.attribute(LINK_NAMESPACE, &pair.namespace.as_raw_fd().to_ne_bytes());
    writer.close(peer);
    writer.close(data);
    writer.close(info);
    writer.end(start);
    writer
}

/// Begins a message about the link with a name.
fn link_message(writer: &mut Writer, kind: u16, flags: u16, name: &str) -> usize {
    let start = writer.begin(kind, REQUEST | ACK | flags);
    link_fixed(writer, 0, 0, 0);
    writer.text(LINK_NAME, name);
    start
}

fn link_fixed(writer: &mut Writer, index: u32, flags: u32, change: u32) {
    writer.raw(&[0; 4]);
    for number in [index, flags, change] {
        writer.raw(&number.to_ne_bytes());
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.first_chunk::<4>()?))
}

fn read_link(payload: &[u8]) -> Option<Link> {
    let (fixed, rest) = payload.split_first_chunk::<LINK_FIXED>()?;
    Some(Link {
        index: number(&fixed[4..])?,
        hardware: attribute(rest, LINK_ADDRESS)
            .and_then(|bytes| bytes.first_chunk().copied())
            .unwrap_or_default(),
        is_up: number(&fixed[8..])? & UP != 0,
    })
}

fn read_name(payload: &[u8]) -> Option<String> {
    let name = attribute(payload.get(LINK_FIXED..)?, LINK_NAME)?;
    Some(String::from_utf8_lossy(name.strip_suffix(&[0])?).into_owned())
}

fn read_address(payload: &[u8], index: u32) -> Option<(IpAddr, u8)> {
    let (fixed, rest) = payload.split_first_chunk::<ADDRESS_FIXED>()?;
    if number(&fixed[4..])? != index {
        return None;
    }
    // IPv6 has no local address beside the peer's.
    let local = attribute(rest, ADDRESS_LOCAL).or_else(|| attribute(rest, ADDRESS_PEER))?;
    let address = match fixed[0] {
        IPV4 => IpAddr::from(Ipv4Addr::from(*local.first_chunk::<4>()?)),
        IPV6 => IpAddr::from(Ipv6Addr::from(*local.first_chunk::<16>()?)),
        _ => return None,
    };
    Some((address, fixed[1]))
}

fn read_route(payload: &[u8]) -> Option<(Ipv4Addr, u32)> {
    let (fixed, rest) = payload.split_first_chunk::<ROUTE_FIXED>()?;
    let [family, length, _, _, table, ..] = *fixed;
    if (family, length, table) != (IPV4, 32, MAIN_TABLE) {
        return None;
    }
    let (mut to, mut link) = (None, None);
    for (kind, data) in attributes(rest) {
        match kind {
            ROUTE_TO => to = data.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets)),
            ROUTE_LINK => link = number(data),
            _ => {}
        }
    }
    Some((to?, link?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::HEADER;

    #[test]
    fn links_are_read_from_whole_messages_alone() {
        let mut writer = Writer::default();
        let start = writer.begin(NEW_LINK, 0);
        link_fixed(&mut writer, 7, UP, 0);
        writer.attribute(LINK_ADDRESS, &[2, 0, 0, 0, 0, 9]);
        writer.end(start);
        let link = Link {
            index: 7,
            hardware: [2, 0, 0, 0, 0, 9],
            is_up: true,
        };
        assert_eq!(read_link(&writer.bytes[HEADER..]), Some(link));
        let address = [&[IPV4, 24, 0, 0, 7, 0, 0, 0][..], &[8, 0, 2, 0, 10, 244, 0, 5]].concat();
        let expected = (Ipv4Addr::new(10, 244, 0, 5).into(), 24);
        assert_eq!(read_address(&address, 7), Some(expected));
        assert_eq!(read_address(&address, 8), None, "of another link");
        machinery_fuzz::fuzz([&writer.bytes[HEADER..], &address], |input| {
            let all = || {
                (
                    read_link(input),
                    read_name(input),
                    read_address(input, 7),
                    read_route(input),
                )
            };
            let _ = machinery_fuzz::in_proportion(input, 1, all);
        });
    }
}
