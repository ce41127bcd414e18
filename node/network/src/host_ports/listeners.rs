//! Ports that programs of the node listen on, as `/proc/net` has them. Pure.

use super::ports::{HostPort, HostPortsConfig, PortKey, Protocol};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Files of the kernel with the sockets that may receive IPv4 packets.
pub const FILES: [(&str, Protocol); 4] = [
    ("tcp", Protocol::Tcp),
    ("tcp6", Protocol::Tcp),
    ("udp", Protocol::Udp),
    ("udp6", Protocol::Udp),
];
/// States of `include/net/tcp_states.h`: listening, and of UDP sockets that are not connected.
const LISTEN: &str = "0A";
const CLOSE: &str = "07";

/// Reads one such line; `None` of a socket that takes no new connections, or only those of IPv6.
pub fn listener(protocol: Protocol, line: &str) -> Option<PortKey> {
    let mut fields = line.split_ascii_whitespace();
    let (local, remote, state) = (fields.nth(1)?, fields.next()?, fields.next()?);
    let listens = match protocol {
        Protocol::Tcp => state == LISTEN,
        // UDP has no listening state: an unconnected socket is in `CLOSE`, and one with a remote end receives
        // from that end alone.
        Protocol::Udp => state == CLOSE && remote.ends_with(":0000"),
        Protocol::Sctp => false,
    };
    let (address, port) = local.split_once(':').filter(|_| listens)?;
    Some(PortKey {
        protocol,
        port: u16::from_str_radix(port, 16).ok()?,
        address: read_address(address)?,
    })
}

/// `None` inside is every address; without one the socket is another family's.
fn read_address(text: &str) -> Option<Option<Ipv4Addr>> {
    let word = |index: usize| {
        let word = text.get(index * 8..index * 8 + 8)?;
        Some(u32::from_str_radix(word, 16).ok()?.to_ne_bytes())
    };
    let address = match text.len() {
        8 => Ipv4Addr::from(word(0)?),
        32 => {
            let bytes = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            let address = Ipv6Addr::from(*bytes.first_chunk::<16>()?);
            if address.is_unspecified() {
                Ipv4Addr::UNSPECIFIED
            } else {
                address.to_ipv4_mapped()?
            }
        }
        _ => return None,
    };
    Some((!address.is_unspecified()).then_some(address))
}

/// The first of these ports whose packets a server of the node would miss.
pub fn first_in_use(config: &HostPortsConfig, listeners: &[PortKey], ports: &[HostPort]) -> Option<PortKey> {
    let own = config.node_ports.iter().map(|port| PortKey {
        protocol: Protocol::Tcp,
        port: *port,
        address: None,
    });
    let mut all: Vec<PortKey> = own.chain(listeners.iter().copied()).collect();
    all.sort_unstable();
    let in_use = |key: &&PortKey| {
        let from = all.partition_point(|other| (other.protocol, other.port) < (key.protocol, key.port));
        let same = all[from..].iter();
        same.take_while(|other| (other.protocol, other.port) == (key.protocol, key.port))
            .any(|other| covers(config, key, other))
    };
    ports.iter().map(|one| &one.key).find(in_use).copied()
}

/// Reports whether a host port takes packets of this listener. A port on every address excludes what the table excludes:
/// addresses of the cluster, and loopback addresses but the first.
fn covers(config: &HostPortsConfig, key: &PortKey, listener: &PortKey) -> bool {
    let left_alone = |address: Ipv4Addr| {
        let reserved = config
            .reserved_addresses
            .iter()
            .any(|range| range.contains(&address));
        reserved || (address.is_loopback() && address != Ipv4Addr::LOCALHOST)
    };
    let alone = key.address.is_none() && listener.address.is_some_and(left_alone);
    key.overlaps(listener) && !alone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_line(protocol: Protocol, line: &str, expected: Option<(Option<[u8; 4]>, u16)>) {
        let expected = expected.map(|(address, port)| PortKey {
            protocol,
            port,
            address: address.map(Ipv4Addr::from),
        });
        assert_eq!(listener(protocol, line), expected, "{line}");
    }

    // The kernel writes words of addresses in the machine's order.
    #[test]
    #[cfg(target_endian = "little")]
    fn listeners_are_read_as_the_kernel_writes_them() {
        let tcp = Protocol::Tcp;
        check_line(
            tcp,
            "  0: 0100007F:0050 00000000:0000 0A 00000000:00000000",
            Some((Some([127, 0, 0, 1]), 80)),
        );
        check_line(
            tcp,
            "  1: 00000000:2809 00000000:0000 0A 0:0 00",
            Some((None, 0x2809)),
        );
        check_line(tcp, "  2: 0100007F:0050 0100007F:9000 01 0:0", None);
        let mapped =
            "  3: 0000000000000000FFFF0000010200C0:01BB 00000000000000000000000000000000:0000 0A 0:0";
        check_line(tcp, mapped, Some((Some([192, 0, 2, 1]), 443)));
        let any = "  4: 00000000000000000000000000000000:01BB 00000000000000000000000000000000:0000 0A 0:0";
        check_line(tcp, any, Some((None, 443)));
        let six = "  5: B80D0120000000000000000001000000:01BB 00000000000000000000000000000000:0000 0A 0:0";
        check_line(tcp, six, None);
        check_line(
            Protocol::Udp,
            "  6: 3500007F:0035 00000000:0000 07 0:0",
            Some((Some([127, 0, 0, 53]), 53)),
        );
        check_line(Protocol::Udp, "  7: 3500007F:0035 0100007F:1000 01 0:0", None);
        let heading = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid";
        check_line(tcp, heading, None);
        machinery_fuzz::fuzz([mapped.as_bytes(), any.as_bytes()], |input| {
            let line = String::from_utf8_lossy(input);
            let _ = machinery_fuzz::in_proportion(input, 1, || listener(tcp, &line));
        });
    }

    #[track_caller]
    fn check(listener: (&str, u16), port: (&str, u16), in_use: bool) {
        let config = HostPortsConfig {
            reserved_addresses: vec!["10.96.0.0/16".parse().unwrap()],
            node_ports: vec![6443],
        };
        let key = |(address, port): (&str, u16)| PortKey {
            protocol: Protocol::Tcp,
            port,
            address: address.parse().ok(),
        };
        let requested = HostPort {
            key: key(port),
            container_port: 1,
        };
        let found = first_in_use(&config, &[key(listener)], &[requested]);
        assert_eq!(found, in_use.then_some(requested.key), "{listener:?} {port:?}");
        let udp = PortKey {
            protocol: Protocol::Udp,
            ..key(port)
        };
        let requested = HostPort {
            key: udp,
            ..requested
        };
        assert_eq!(first_in_use(&config, &[key(listener)], &[requested]), None);
    }

    #[test]
    fn host_port_that_a_program_listens_on_is_refused() {
        check(("", 80), ("", 80), true);
        check(("", 80), ("192.0.2.1", 80), true);
        check(("", 80), ("", 81), false);
        check(("127.0.0.1", 80), ("", 80), true);
        check(("192.0.2.1", 80), ("192.0.2.1", 80), true);
        check(("192.0.2.1", 80), ("192.0.2.2", 80), false);
        // Name servers: the machine's own, and the cluster's.
        check(("127.0.0.53", 53), ("", 53), false);
        check(("127.0.0.53", 53), ("127.0.0.53", 53), true);
        check(("10.96.0.10", 53), ("", 53), false);
        // The API server is away at the moment.
        check(("", 80), ("", 6443), true);
        check(("", 80), ("127.0.0.1", 6443), true);
    }
}
