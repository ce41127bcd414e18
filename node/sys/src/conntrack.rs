//! UDP flows that the kernel's connection tracking knows, read and forgotten over netlink.

use crate::netlink::{ACK, DUMP, Message, REQUEST, Socket, Writer, attribute};
use nix::sys::socket::SockProtocol;
use std::io;
use std::net::Ipv4Addr;

const SUBSYSTEM: u16 = 1 << 8;
const GET: u16 = SUBSYSTEM | 1;
const DELETE: u16 = SUBSYSTEM | 2;
const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const ID: u16 = 12;
const ZONE: u16 = 18;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
const NESTED: u16 = 0x8000;
const IPV4: u8 = 2;
const UDP: u8 = 17;
/// `struct nfgenmsg`.
const FIXED: usize = 4;

/// An address and a port.
pub type SocketAddress = (Ipv4Addr, u16);

/// One UDP flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// Destination of the client.
    pub destination: SocketAddress,
    /// Source of answers: the same address, unless it was translated.
    pub answered_by: SocketAddress,
    /// The kernel's own words for it.
    original: Vec<u8>,
    id: Option<Vec<u8>>,
    zone: Option<Vec<u8>>,
}

/// The UDP flows of this thread's network namespace for which `wanted` holds; it blocks.
pub fn udp_flows(wanted: impl Fn(&Flow) -> bool) -> io::Result<Vec<Flow>> {
    let mut writer = Writer::default();
    let start = writer.begin(GET, REQUEST | DUMP);
    writer.raw(&[IPV4, 0, 0, 0]);
    writer.end(start);
    let mut found = Vec::new();
    let mut socket = Socket::open(SockProtocol::NetlinkNetFilter, 0)?;
    socket.request(&writer, |message| found.extend(read(message).filter(&wanted)))?;
    Ok(found)
}

/// Forgets these flows and no others; those that ended by themselves count as forgotten.
pub fn forget(flows: &[Flow]) -> io::Result<()> {
    let mut socket = Socket::open(SockProtocol::NetlinkNetFilter, 0)?;
    for flow in flows {
        match socket.request(&deletion(flow), |_| ()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

fn deletion(flow: &Flow) -> Writer {
    let mut writer = Writer::default();
    let start = writer.begin(DELETE, REQUEST | ACK);
    writer.raw(&[IPV4, 0, 0, 0]);
    writer.attribute(ORIGINAL | NESTED, &flow.original);
    // With the id the kernel refuses to delete a newer flow of the same addresses.
    if let Some(id) = &flow.id {
        writer.attribute(ID, id);
    }
    if let Some(zone) = &flow.zone {
        writer.attribute(ZONE, zone);
    }
    writer.end(start);
    writer
}

fn read(message: &Message<'_>) -> Option<Flow> {
    let attributes = message.payload.get(FIXED..)?;
    let original = attribute(attributes, ORIGINAL)?;
    let reply = attribute(attributes, REPLY)?;
    let [_, destination] = addresses(original)?;
    let [answered_by, _] = addresses(reply)?;
    let owned = |kind| attribute(attributes, kind).map(<[u8]>::to_vec);
    Some(Flow {
        destination,
        answered_by,
        original: original.to_vec(),
        id: owned(ID),
        zone: owned(ZONE),
    })
}

/// Source and destination of a direction, where it is UDP over IPv4.
fn addresses(tuple: &[u8]) -> Option<[SocketAddress; 2]> {
    let (ips, protocol) = (attribute(tuple, TUPLE_IP)?, attribute(tuple, TUPLE_PROTOCOL)?);
    if attribute(protocol, 1)? != [UDP] {
        return None;
    }
    let pair = |address: u16, port: u16| {
        let address = attribute(ips, address)?.first_chunk::<4>()?;
        let port = attribute(protocol, port)?.first_chunk::<2>()?;
        Some((Ipv4Addr::from(*address), u16::from_be_bytes(*port)))
    };
    Some([pair(1, 2)?, pair(2, 3)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::messages;

    fn tuple(writer: &mut Writer, kind: u16, source: SocketAddress, destination: SocketAddress) {
        let tuple = writer.nest(kind);
        let addresses = writer.nest(TUPLE_IP);
        writer.attribute(1, &source.0.octets());
        writer.attribute(2, &destination.0.octets());
        writer.close(addresses);
        let protocol = writer.nest(TUPLE_PROTOCOL);
        writer.attribute(1, &[UDP]);
        writer.attribute(2, &source.1.to_be_bytes());
        writer.attribute(3, &destination.1.to_be_bytes());
        writer.close(protocol);
        writer.close(tuple);
    }

    #[test]
    fn flow_is_read_and_named_as_the_kernel_does() {
        let client = (Ipv4Addr::new(10, 244, 0, 9), 4000);
        let service = (Ipv4Addr::new(10, 96, 0, 5), 53);
        let pod = (Ipv4Addr::new(10, 244, 0, 2), 5353);
        let mut writer = Writer::default();
        let start = writer.begin(SUBSYSTEM, 0);
        writer.raw(&[IPV4, 0, 0, 0]);
        tuple(&mut writer, ORIGINAL, client, service);
        tuple(&mut writer, REPLY, pod, client);
        writer.attribute(ID, &[1, 2, 3, 4]);
        writer.end(start);
        let flow = messages(&writer.bytes)
            .find_map(|message| read(&message))
            .unwrap();
        assert_eq!((flow.destination, flow.answered_by), (service, pod));
        let again = deletion(&flow);
        let message = messages(&again.bytes).next().unwrap();
        let attributes = &message.payload[FIXED..];
        assert_eq!(
            addresses(attribute(attributes, ORIGINAL).unwrap()),
            Some([client, service])
        );
        assert_eq!(attribute(attributes, ID), Some(&[1, 2, 3, 4][..]));
        machinery_fuzz::fuzz([&writer.bytes], |input| {
            let flows = || messages(input).filter_map(|message| read(&message)).count();
            assert!(machinery_fuzz::in_proportion(input, 4, flows) <= input.len());
        });
    }
}
