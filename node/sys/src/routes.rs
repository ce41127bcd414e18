//! IPv4 routes of ours in the main table, known by their protocol number.

use crate::netlink::{ACK, CREATE, DUMP, Message, REPLACE, REQUEST, Socket, Writer, attribute};
use nix::sys::socket::SockProtocol;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Mutex;

/// Routing protocol id of our routes: a number that is free in iproute2's `rt_protos`.
pub const PROTOCOL: u8 = 75;
const MAIN_TABLE: u8 = 254;
const IPV4: u8 = 2;
const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;
const GET_ROUTE: u16 = 26;
const UNICAST: u8 = 1;
const DESTINATION: u16 = 1;
const GATEWAY: u16 = 5;
/// `struct rtmsg`.
const FIXED: usize = 12;

/// A range of addresses: the first of them, and the length of what they share.
pub type Range = (Ipv4Addr, u8);

/// Routes of ours, by the range they lead to.
pub trait Routes: Send + Sync + Debug {
    /// All of them, with the gateway of each.
    fn list(&self) -> io::Result<BTreeMap<Range, Ipv4Addr>>;

    /// Adds one, or replaces the one to this range, whatever made it.
    fn set(&self, range: Range, gateway: Ipv4Addr) -> io::Result<()>;

    /// Removes one of ours.
    fn remove(&self, range: Range) -> io::Result<()>;
}

/// The kernel's.
#[derive(Debug)]
pub struct LinuxRoutes {
    socket: Mutex<Socket>,
}

impl LinuxRoutes {
    /// Routes of the network namespace of this thread.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            socket: Mutex::new(Socket::open(SockProtocol::NetlinkRoute, 0)?),
        })
    }

    fn request(&self, request: &Writer, each: impl FnMut(&Message<'_>)) -> io::Result<()> {
        let mut socket = self.socket.lock().expect("nothing panics while it is held");
        socket.request(request, each)
    }
}

impl Routes for LinuxRoutes {
    fn list(&self) -> io::Result<BTreeMap<Range, Ipv4Addr>> {
        let mut writer = Writer::default();
        let start = writer.begin(GET_ROUTE, REQUEST | DUMP);
        writer.raw(&[IPV4, 0, 0, 0, MAIN_TABLE, PROTOCOL, 0, 0, 0, 0, 0, 0]);
        writer.end(start);
        let mut found = BTreeMap::new();
        self.request(&writer, |message| found.extend(read(message.payload)))?;
        Ok(found)
    }

    fn set(&self, range: Range, gateway: Ipv4Addr) -> io::Result<()> {
        let writer = message(NEW_ROUTE, CREATE | REPLACE, range, Some(gateway));
        self.request(&writer, |_| ())
    }

    fn remove(&self, range: Range) -> io::Result<()> {
        match self.request(&message(DELETE_ROUTE, 0, range, None), |_| ()) {
            // Gone already, with the link it led over.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            other => other,
        }
    }
}

fn message(kind: u16, flags: u16, range: Range, gateway: Option<Ipv4Addr>) -> Writer {
    let mut writer = Writer::default();
    let start = writer.begin(kind, REQUEST | ACK | flags);
    writer.raw(&[IPV4, range.1, 0, 0, MAIN_TABLE, PROTOCOL, 0, UNICAST, 0, 0, 0, 0]);
    writer.attribute(DESTINATION, &range.0.octets());
    if let Some(gateway) = gateway {
        writer.attribute(GATEWAY, &gateway.octets());
    }
    writer.end(start);
    writer
}

/// A route of ours; `None` for any other.
fn read(payload: &[u8]) -> Option<(Range, Ipv4Addr)> {
    let (fixed, rest) = payload.split_first_chunk::<FIXED>()?;
    let [family, length, _, _, table, protocol, ..] = *fixed;
    if (family, table, protocol) != (IPV4, MAIN_TABLE, PROTOCOL) {
        return None;
    }
    let address = |kind| Some(Ipv4Addr::from(*attribute(rest, kind)?.first_chunk::<4>()?));
    // The whole of IPv4 has no destination.
    let destination = address(DESTINATION).unwrap_or(Ipv4Addr::UNSPECIFIED);
    Some(((destination, length), address(GATEWAY)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_of_ours_are_read_and_no_others() {
        let range = (Ipv4Addr::new(10, 244, 1, 0), 24);
        let gateway = Ipv4Addr::new(192, 0, 2, 2);
        let writer = message(NEW_ROUTE, 0, range, Some(gateway));
        let payload = &writer.bytes[crate::netlink::HEADER..];
        assert_eq!(read(payload), Some((range, gateway)));
        let mut others = payload.to_vec();
        others[5] = 3;
        assert_eq!(read(&others), None);
        machinery_fuzz::fuzz([payload], |input| {
            let _ = machinery_fuzz::in_proportion(input, 1, || read(input));
        });
    }
}
